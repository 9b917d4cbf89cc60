package cuda

import (
	"fmt"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

type (
	Ptr     = driver.Ptr     // device address
	Dim3    = driver.Dim3    // blocks or threads; zero Y and Z count as 1
	Version = driver.Version // 13000 is CUDA 13.0
)

// MinVersion is the oldest driver this package is meant for: all of the CUDA 12 family know Hopper's launch attributes.
const MinVersion Version = 12000

// Driver is the driver library. It is safe for concurrent use.
type Driver struct {
	api     driver.API
	version Version
}

// Open loads libcuda.so.1, checks that every function is there, and initialises it.
func Open() (*Driver, error) { return open("libcuda.so.1") }

func open(path string) (*Driver, error) {
	api, err := driver.Load(path)
	if err != nil {
		return nil, loadError(err)
	}
	return New(api)
}

// New checks and initialises a driver that was loaded elsewhere; tests hand it one in Go.
func New(api driver.API) (*Driver, error) {
	d := &Driver{api: api}
	for _, s := range driver.Symbols()[:2] { // without these two the version can't be asked
		if !api.Has(s.Name) {
			return nil, &SymbolError{Symbol: s}
		}
	}
	var v int32
	if r := api.DriverGetVersion(&v); r != driver.Success {
		return nil, &Error{Call: "cuDriverGetVersion", Result: r}
	}
	d.version = Version(v)
	if err := d.Require(MinVersion, "this program needs at least "+MinVersion.String()); err != nil {
		return nil, err
	}
	for _, s := range driver.Symbols() {
		if !s.Optional && !api.Has(s.Name) {
			return nil, &SymbolError{Symbol: s, Driver: d.version}
		}
	}
	if r := api.Init(0); r != driver.Success {
		return nil, &Error{Call: "cuInit", Result: r}
	}
	return d, nil
}

// Version returns the newest CUDA that the driver supports.
func (d *Driver) Version() Version { return d.version }

// Require returns a *VersionError unless the driver supports CUDA v; why completes the sentence "the driver
// supports CUDA …, ".
func (d *Driver) Require(v Version, why string) error {
	if d.version >= v {
		return nil
	}
	return &VersionError{Driver: d.version, Need: v, For: why}
}

// loadError says what to do about a library that can't be loaded.
func loadError(err error) error {
	if err == driver.ErrPlatform {
		return fmt.Errorf("%w: %w: use the CPU backend", ErrPlatform, err)
	}
	return fmt.Errorf("%w: %w: install one (Debian: nvidia-driver), or start the container with GPUs (--gpus all)", ErrNoDriver, err)
}
