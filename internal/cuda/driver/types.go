package driver

import (
	"fmt"
	"unsafe"
)

// Handles of things the driver owns; zero is none.
type (
	Device   int32 // ordinal
	Context  uintptr
	Stream   uintptr
	Event    uintptr
	Module   uintptr
	Function uintptr
	Graph    uintptr
	Exec     uintptr // a graph ready to launch
	Physical uint64  // memory without an address
	Ptr      uint64  // device address
)

// Version is the newest CUDA a driver supports: 1000·major + 10·minor.
type Version int

func (v Version) String() string { return fmt.Sprintf("%d.%d", int(v)/1000, int(v)%1000/10) }

// branches are the first driver branches of the CUDA releases (CUDA release notes, table of driver versions).
var branches = []struct {
	cuda   Version
	branch int
}{
	{13000, 580}, {12090, 575}, {12080, 570}, {12060, 560}, {12050, 555}, {12040, 550}, {12030, 545}, {12020, 535},
	{12010, 530}, {12000, 525}, {11080, 520}, {11070, 515}, {11060, 510}, {11040, 470},
}

// Branch returns the oldest driver branch ("525") that supports v, 0 if v is newer than this table.
func (v Version) Branch() int {
	b := 0
	for _, r := range branches {
		if r.cuda < v {
			break
		}
		b = r.branch
	}
	return b
}

// Dim3 is an extent in blocks or threads.
type Dim3 struct{ X, Y, Z uint32 }

// LaunchAttr names a launch attribute.
type LaunchAttr int32

const (
	AttrCooperative     LaunchAttr = 2 // int: all blocks resident at once, so they may wait for each other
	AttrCluster         LaunchAttr = 4 // Dim3
	AttrProgrammatic    LaunchAttr = 6 // int: may start before its predecessor in the stream has ended
	MaxLaunchAttributes            = 3
)

// LaunchAttribute is CUlaunchAttribute: the name, then a union of 64 bytes.
type LaunchAttribute struct {
	ID    LaunchAttr
	_     int32
	Value [16]uint32
}

// LaunchConfig is CUlaunchConfig.
type LaunchConfig struct {
	Grid, Block Dim3
	SharedBytes uint32
	Stream      Stream
	Attrs       *LaunchAttribute
	NumAttrs    uint32
}

// Launch is everything a launch hands to the driver, in one block that is reused from launch to launch: the
// driver copies what it needs before the call returns. Make it with NewLaunch: it holds pointers into itself.
type Launch struct {
	Config LaunchConfig
	Attrs  [MaxLaunchAttributes]LaunchAttribute
	Params []unsafe.Pointer // one address of an argument's bytes for each parameter of the function
	args   [4]uintptr       // of the C call
}

// NewLaunch returns a block for a function with these parameters.
func NewLaunch(params []unsafe.Pointer) *Launch {
	l := &Launch{Params: params}
	l.Config.Attrs = &l.Attrs[0]
	return l
}

// LocationDevice says that a Location is a device.
const LocationDevice = 1

// Location is CUmemLocation: where memory is.
type Location struct {
	Type int32
	ID   int32
}

// AllocationPinned is the only kind of physical memory that devices offer.
const AllocationPinned = 1

// AllocationProp is CUmemAllocationProp: what MemCreate shall create.
type AllocationProp struct {
	Type        int32
	HandleTypes int32 // for other processes; 0 none
	Location    Location
	_           uintptr
	_           [8]uint8 // compression, RDMA, usage: none
}

const (
	AccessNone      = 0
	AccessReadWrite = 3
)

// AccessDesc is CUmemAccessDesc: who may do what with a range of addresses.
type AccessDesc struct {
	Location Location
	Flags    int32
}

// Flags of calls.
const (
	StreamNonBlocking  = 1
	EventDefault       = 0
	EventDisableTiming = 2

	CaptureThreadLocal = 1
	CaptureStatusNone  = 0

	HostAllocPortable  = 1
	HostAllocDeviceMap = 2

	GranularityMinimum     = 0
	GranularityRecommended = 1
)

// JITOption names an option of ModuleLoadDataEx.
type JITOption int32

const (
	JITErrorLogBuffer      JITOption = 5
	JITErrorLogBufferBytes JITOption = 6
)

// FuncAttr names an attribute of a function.
type FuncAttr int32

const (
	FuncMaxThreadsPerBlock     FuncAttr = 0
	FuncSharedBytes            FuncAttr = 1 // static
	FuncConstBytes             FuncAttr = 2
	FuncLocalBytes             FuncAttr = 3 // per thread: spills and arrays
	FuncNumRegs                FuncAttr = 4
	FuncPTXVersion             FuncAttr = 5
	FuncBinaryVersion          FuncAttr = 6
	FuncMaxDynamicSharedBytes  FuncAttr = 8
	FuncNonPortableClusterSize FuncAttr = 14
)

// DeviceAttr names an attribute of a device.
type DeviceAttr int32

const (
	DevMaxThreadsPerBlock   DeviceAttr = 1
	DevMaxGridX             DeviceAttr = 5
	DevMaxGridY             DeviceAttr = 6
	DevMaxGridZ             DeviceAttr = 7
	DevSharedPerBlock       DeviceAttr = 8
	DevWarpSize             DeviceAttr = 10
	DevClockKHz             DeviceAttr = 13
	DevSMs                  DeviceAttr = 16
	DevECC                  DeviceAttr = 32
	DevPCIBus               DeviceAttr = 33
	DevPCIDevice            DeviceAttr = 34
	DevMemoryClockKHz       DeviceAttr = 36
	DevMemoryBusBits        DeviceAttr = 37
	DevL2Bytes              DeviceAttr = 38
	DevMaxThreadsPerSM      DeviceAttr = 39
	DevPCIDomain            DeviceAttr = 50
	DevCapabilityMajor      DeviceAttr = 75
	DevCapabilityMinor      DeviceAttr = 76
	DevSharedPerSM          DeviceAttr = 81
	DevRegsPerSM            DeviceAttr = 82
	DevCooperative          DeviceAttr = 95
	DevSharedPerBlockOptin  DeviceAttr = 97
	DevVirtualMemory        DeviceAttr = 102
	DevMaxBlocksPerSM       DeviceAttr = 106
	DevReservedSharedBlock  DeviceAttr = 111
	DevCluster              DeviceAttr = 120
	DevMaxPersistingL2Bytes DeviceAttr = 108
)
