package cuda

import (
	"errors"
	"fmt"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// What callers act on. Errors of this package match at most one of them with errors.Is.
var (
	ErrPlatform     = errors.New("cuda: unsupported on this operating system or processor")
	ErrNoDriver     = errors.New("cuda: no NVIDIA driver")
	ErrDriverTooOld = errors.New("cuda: driver too old")
	ErrSymbol       = errors.New("cuda: function missing from the driver")
	ErrNoDevice     = errors.New("cuda: no device")
	ErrOutOfMemory  = errors.New("cuda: out of device memory")
	ErrContextLost  = errors.New("cuda: context lost") // fatal: start the process anew
	ErrNoKernel     = errors.New("cuda: no kernel for this device")
	ErrTooLarge     = errors.New("cuda: launch exceeds the device") // grid, cluster, threads, shared memory
	ErrCapture      = errors.New("cuda: not possible during stream capture")
	ErrInvalid      = errors.New("cuda: invalid argument")
	ErrUnsupported  = errors.New("cuda: not supported by this device")
	ErrClosed       = errors.New("cuda: used after Close")
)

// Error is a call that the driver refused, or that returned what an earlier one caused.
type Error struct {
	Call   string        // the function of libcuda
	What   string        // on what, empty where the call says it
	Result driver.Result // its answer
}

func (e *Error) Error() string {
	s := "cuda: " + e.Call
	if e.What != "" {
		s += " (" + e.What + ")"
	}
	s += ": " + e.Result.String()
	if r := results[e.Result].remedy; r != "" {
		s += ": " + r
	}
	return s
}

// Is makes errors.Is(err, ErrOutOfMemory) and the like work.
func (e *Error) Is(target error) bool {
	k := results[e.Result].kind
	return k != nil && k == target
}

// lostError answers calls on a context that an earlier failure destroyed.
type lostError struct{ first *Error }

func (e *lostError) Error() string {
	return "cuda: the context is lost since an earlier failure: " + e.first.Error()
}
func (e *lostError) Unwrap() error { return e.first }

// SymbolError says that the driver library lacks a function.
type SymbolError struct {
	Symbol driver.Symbol
	Driver driver.Version // what the library says it is
}

func (e *SymbolError) Error() string {
	return fmt.Sprintf("cuda: libcuda.so.1 has no %s, which CUDA %v brought: the installed driver supports CUDA %v: %s",
		e.Symbol.Name, e.Symbol.Since, e.Driver, install(max(e.Symbol.Since, MinVersion)))
}

func (e *SymbolError) Is(target error) bool { return target == ErrSymbol }

// VersionError says that the driver is older than what is asked of it.
type VersionError struct {
	Driver, Need driver.Version
	For          string // what needs it
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("cuda: the installed driver supports CUDA %v, %s: %s", e.Driver, e.For, install(e.Need))
}

func (e *VersionError) Is(target error) bool { return target == ErrDriverTooOld }

// install says which driver supports v.
func install(v driver.Version) string {
	if b := v.Branch(); b != 0 {
		return fmt.Sprintf("install NVIDIA driver %d or newer (CUDA %v)", b, v)
	}
	return fmt.Sprintf("install an NVIDIA driver that supports CUDA %v", v)
}

const (
	restart   = "the context is gone with everything in it: start the process anew"
	sanitizer = ", and run the same input under compute-sanitizer to find the access"
	debugging = "; a kernel is wrong or was handed a wrong address" + sanitizer
	checkGPU  = "; nvidia-smi -q and the kernel log (Xid) tell more; if it repeats, the device needs service"
	smaller   = "use fewer blocks, threads or less shared memory"
	endFirst  = "the call isn't possible while a stream is captured; do it before Capture or after"
)

// results maps the driver's answers to what callers act on, and to a remedy.
var results = map[driver.Result]struct {
	kind   error
	remedy string
}{
	driver.InvalidValue:            {ErrInvalid, ""},
	driver.OutOfMemory:             {ErrOutOfMemory, "use a smaller KV cache, batch or model, or end what else uses the device (nvidia-smi lists it)"},
	driver.NotInitialized:          {nil, "open the driver first"},
	driver.Deinitialized:           {nil, "the process is ending"},
	driver.StubLibrary:             {ErrNoDriver, "the library found is the stub of the CUDA toolkit, meant for linking: take it from LD_LIBRARY_PATH and install the NVIDIA driver"},
	driver.CallRequiresNewerDriver: {ErrDriverTooOld, "install a newer NVIDIA driver"},
	driver.DeviceUnavailable:       {ErrNoDevice, "another process holds the device exclusively (nvidia-smi -q -d COMPUTE)"},
	driver.NoDevice:                {ErrNoDevice, "nvidia-smi should list a GPU; in a container, start it with GPUs (--gpus all); check CUDA_VISIBLE_DEVICES"},
	driver.InvalidDevice:           {ErrNoDevice, "the number of the device is out of range"},
	driver.InvalidImage:            {ErrNoKernel, "the file is neither a cubin, a fatbin nor PTX"},
	driver.InvalidContext:          {nil, "the context was destroyed by someone else in this process"},
	driver.NoBinaryForGPU:          {ErrNoKernel, "the kernels were not built for this GPU's compute capability"},
	driver.InvalidPTX:              {ErrNoKernel, "the driver's compiler refuses the PTX"},
	driver.JITCompilerNotFound:     {ErrNoKernel, "libnvidia-ptxjitcompiler.so.1 is missing: install the complete driver"},
	driver.UnsupportedPTXVersion:   {ErrDriverTooOld, "the kernels come from a newer compiler than the driver knows: " + "install a newer NVIDIA driver"},
	driver.JITCompilationDisabled:  {ErrNoKernel, "unset CUDA_DISABLE_PTX_JIT"},
	driver.OperatingSystem:         {nil, "the operating system refused a call of the driver: check limits (ulimit -l, ulimit -v) and permissions of /dev/nvidia*"},
	driver.InvalidHandle:           {ErrInvalid, "a handle that the driver doesn't know, or of another context"},
	driver.NotFound:                {ErrNoKernel, "the module has no symbol of this name"},

	driver.ECCUncorrectable:    {ErrContextLost, restart + checkGPU},
	driver.NVLinkUncorrectable: {ErrContextLost, restart + checkGPU},
	driver.Contained:           {ErrContextLost, restart + checkGPU},
	driver.IllegalAddress:      {ErrContextLost, restart + debugging},
	driver.LaunchTimeout:       {ErrContextLost, restart + "; the display's watchdog ended a kernel: use a GPU without a display"},
	driver.ContextIsDestroyed:  {ErrContextLost, restart},
	driver.Assert:              {ErrContextLost, restart + "; an assertion in a kernel failed"},
	driver.HardwareStackError:  {ErrContextLost, restart + debugging},
	driver.IllegalInstruction:  {ErrContextLost, restart + debugging},
	driver.MisalignedAddress:   {ErrContextLost, restart + debugging},
	driver.InvalidAddressSpace: {ErrContextLost, restart + debugging},
	driver.InvalidPC:           {ErrContextLost, restart + debugging},
	driver.LaunchFailed:        {ErrContextLost, restart + debugging},
	driver.TensorMemoryLeak:    {ErrContextLost, restart + debugging},
	driver.MPSClientTerminated: {ErrContextLost, restart + "; another client of the MPS server broke it"},
	driver.ExternalDevice:      {ErrContextLost, restart + checkGPU},

	driver.LaunchOutOfResources:       {ErrTooLarge, smaller},
	driver.CooperativeLaunchTooLarge:  {ErrTooLarge, "a cooperative grid has to be resident at once: at most Function.MaxBlocksPerSM × Device.SMs blocks"},
	driver.InvalidClusterSize:         {ErrTooLarge, "more than 8 blocks a cluster need Function.AllowLargeClusters; Launch.MaxClusterSize tells the limit"},
	driver.NotPermitted:               {ErrUnsupported, ""},
	driver.NotSupported:               {ErrUnsupported, ""},
	driver.SystemNotReady:             {ErrNoDriver, "the system is still starting: nvidia-fabricmanager must run on machines with NVSwitch"},
	driver.SystemDriverMismatch:       {ErrNoDriver, "the driver's library and kernel module differ in version: reboot, or load the new module"},
	driver.CompatNotSupportedOnDevice: {ErrNoDriver, "the forward-compatibility library doesn't support this device: take it from LD_LIBRARY_PATH"},
	driver.StreamCaptureUnsupported:   {ErrCapture, endFirst},
	driver.StreamCaptureInvalidated:   {ErrCapture, "an earlier call spoiled the capture"},
	driver.StreamCaptureMerge:         {ErrCapture, "two captures can't be joined"},
	driver.StreamCaptureUnmatched:     {ErrCapture, "the capture was begun on another stream"},
	driver.StreamCaptureUnjoined:      {ErrCapture, "a stream that joined the capture has to be waited for by the first (Record, Wait)"},
	driver.StreamCaptureIsolation:     {ErrCapture, "work in the capture can't depend on work outside"},
	driver.StreamCaptureImplicit:      {ErrCapture, endFirst},
	driver.CapturedEvent:              {ErrCapture, "the event was last recorded in a capture: it can't be asked"},
	driver.StreamCaptureWrongThread:   {ErrCapture, "the capture was begun on another thread"},
	driver.Unknown:                    {nil, "check that the kernel modules nvidia and nvidia_uvm are loaded and /dev/nvidia-uvm exists (nvidia-smi, nvidia-modprobe -u)"},
}

// lost reports whether a result means that the context can't be used any more.
func lost(r driver.Result) bool { return results[r].kind == ErrContextLost }
