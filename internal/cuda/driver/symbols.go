package driver

// Symbol is a function of the library.
type Symbol struct {
	Name     string  // as the library exports it
	Since    Version // the first CUDA that has it in this form (cudaTypedefs.h)
	Optional bool    // the caller manages without
}

type symbol int

const (
	symInit symbol = iota
	symDriverGetVersion
	symDeviceGetCount
	symDeviceGet
	symDeviceGetName
	symDeviceTotalMem
	symDeviceGetAttribute
	symDeviceGetUuid
	symDevicePrimaryCtxRetain
	symDevicePrimaryCtxRelease
	symCtxSetCurrent
	symCtxGetStreamPriorityRange
	symStreamCreateWithPriority
	symStreamDestroy
	symStreamSynchronize
	symStreamQuery
	symStreamWaitEvent
	symStreamBeginCapture
	symStreamEndCapture
	symStreamIsCapturing
	symEventCreate
	symEventDestroy
	symEventRecord
	symEventSynchronize
	symEventQuery
	symEventElapsedTime
	symModuleLoadDataEx
	symModuleUnload
	symModuleGetFunction
	symModuleGetGlobal
	symFuncGetAttribute
	symFuncSetAttribute
	symFuncGetParamInfo
	symFuncLoad
	symOccupancyMaxActiveBlocks
	symOccupancyMaxActiveClusters
	symOccupancyMaxPotentialClusterSize
	symLaunchKernelEx
	symGraphInstantiateWithFlags
	symGraphUpload
	symGraphLaunch
	symGraphExecDestroy
	symGraphDestroy
	symGraphGetNodes
	symMemAlloc
	symMemFree
	symMemGetInfo
	symMemcpyHtoDAsync
	symMemcpyDtoHAsync
	symMemcpyDtoDAsync
	symMemsetD8Async
	symMemsetD32Async
	symMemHostAlloc
	symMemFreeHost
	symMemHostGetDevicePointer
	symMemAddressReserve
	symMemAddressFree
	symMemCreate
	symMemRelease
	symMemMap
	symMemUnmap
	symMemSetAccess
	symMemGetAllocationGranularity
	numSymbols
)

// symbols is indexed by symbol. A name without _v2 where cuda.h has one would call the function of an old
// interface with other types: sizes of 32 bits, for instance.
var symbols = [numSymbols]Symbol{
	symInit:                             {Name: "cuInit", Since: 2000},
	symDriverGetVersion:                 {Name: "cuDriverGetVersion", Since: 2020},
	symDeviceGetCount:                   {Name: "cuDeviceGetCount", Since: 2000},
	symDeviceGet:                        {Name: "cuDeviceGet", Since: 2000},
	symDeviceGetName:                    {Name: "cuDeviceGetName", Since: 2000},
	symDeviceTotalMem:                   {Name: "cuDeviceTotalMem_v2", Since: 3020},
	symDeviceGetAttribute:               {Name: "cuDeviceGetAttribute", Since: 2000},
	symDeviceGetUuid:                    {Name: "cuDeviceGetUuid_v2", Since: 11040},
	symDevicePrimaryCtxRetain:           {Name: "cuDevicePrimaryCtxRetain", Since: 7000},
	symDevicePrimaryCtxRelease:          {Name: "cuDevicePrimaryCtxRelease_v2", Since: 11000},
	symCtxSetCurrent:                    {Name: "cuCtxSetCurrent", Since: 4000},
	symCtxGetStreamPriorityRange:        {Name: "cuCtxGetStreamPriorityRange", Since: 5050},
	symStreamCreateWithPriority:         {Name: "cuStreamCreateWithPriority", Since: 5050},
	symStreamDestroy:                    {Name: "cuStreamDestroy_v2", Since: 4000},
	symStreamSynchronize:                {Name: "cuStreamSynchronize", Since: 2000},
	symStreamQuery:                      {Name: "cuStreamQuery", Since: 2000},
	symStreamWaitEvent:                  {Name: "cuStreamWaitEvent", Since: 3020},
	symStreamBeginCapture:               {Name: "cuStreamBeginCapture_v2", Since: 10010},
	symStreamEndCapture:                 {Name: "cuStreamEndCapture", Since: 10000},
	symStreamIsCapturing:                {Name: "cuStreamIsCapturing", Since: 10000},
	symEventCreate:                      {Name: "cuEventCreate", Since: 2000},
	symEventDestroy:                     {Name: "cuEventDestroy_v2", Since: 4000},
	symEventRecord:                      {Name: "cuEventRecord", Since: 2000},
	symEventSynchronize:                 {Name: "cuEventSynchronize", Since: 2000},
	symEventQuery:                       {Name: "cuEventQuery", Since: 2000},
	symEventElapsedTime:                 {Name: "cuEventElapsedTime", Since: 2000},
	symModuleLoadDataEx:                 {Name: "cuModuleLoadDataEx", Since: 2010},
	symModuleUnload:                     {Name: "cuModuleUnload", Since: 2000},
	symModuleGetFunction:                {Name: "cuModuleGetFunction", Since: 2000},
	symModuleGetGlobal:                  {Name: "cuModuleGetGlobal_v2", Since: 3020},
	symFuncGetAttribute:                 {Name: "cuFuncGetAttribute", Since: 2020},
	symFuncSetAttribute:                 {Name: "cuFuncSetAttribute", Since: 9000},
	symFuncGetParamInfo:                 {Name: "cuFuncGetParamInfo", Since: 12040, Optional: true},
	symFuncLoad:                         {Name: "cuFuncLoad", Since: 12040, Optional: true},
	symOccupancyMaxActiveBlocks:         {Name: "cuOccupancyMaxActiveBlocksPerMultiprocessor", Since: 6050},
	symOccupancyMaxActiveClusters:       {Name: "cuOccupancyMaxActiveClusters", Since: 11070},
	symOccupancyMaxPotentialClusterSize: {Name: "cuOccupancyMaxPotentialClusterSize", Since: 11070},
	symLaunchKernelEx:                   {Name: "cuLaunchKernelEx", Since: 11060},
	symGraphInstantiateWithFlags:        {Name: "cuGraphInstantiateWithFlags", Since: 11040},
	symGraphUpload:                      {Name: "cuGraphUpload", Since: 11010},
	symGraphLaunch:                      {Name: "cuGraphLaunch", Since: 10000},
	symGraphExecDestroy:                 {Name: "cuGraphExecDestroy", Since: 10000},
	symGraphDestroy:                     {Name: "cuGraphDestroy", Since: 10000},
	symGraphGetNodes:                    {Name: "cuGraphGetNodes", Since: 10000},
	symMemAlloc:                         {Name: "cuMemAlloc_v2", Since: 3020},
	symMemFree:                          {Name: "cuMemFree_v2", Since: 3020},
	symMemGetInfo:                       {Name: "cuMemGetInfo_v2", Since: 3020},
	symMemcpyHtoDAsync:                  {Name: "cuMemcpyHtoDAsync_v2", Since: 3020},
	symMemcpyDtoHAsync:                  {Name: "cuMemcpyDtoHAsync_v2", Since: 3020},
	symMemcpyDtoDAsync:                  {Name: "cuMemcpyDtoDAsync_v2", Since: 3020},
	symMemsetD8Async:                    {Name: "cuMemsetD8Async", Since: 3020},
	symMemsetD32Async:                   {Name: "cuMemsetD32Async", Since: 3020},
	symMemHostAlloc:                     {Name: "cuMemHostAlloc", Since: 2020},
	symMemFreeHost:                      {Name: "cuMemFreeHost", Since: 2000},
	symMemHostGetDevicePointer:          {Name: "cuMemHostGetDevicePointer_v2", Since: 3020},
	symMemAddressReserve:                {Name: "cuMemAddressReserve", Since: 10020},
	symMemAddressFree:                   {Name: "cuMemAddressFree", Since: 10020},
	symMemCreate:                        {Name: "cuMemCreate", Since: 10020},
	symMemRelease:                       {Name: "cuMemRelease", Since: 10020},
	symMemMap:                           {Name: "cuMemMap", Since: 10020},
	symMemUnmap:                         {Name: "cuMemUnmap", Since: 10020},
	symMemSetAccess:                     {Name: "cuMemSetAccess", Since: 10020},
	symMemGetAllocationGranularity:      {Name: "cuMemGetAllocationGranularity", Since: 10020},
}

// Symbols returns the functions that an API calls.
func Symbols() []Symbol { return symbols[:] }
