package cuda

import (
	"bytes"
	"fmt"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Device is a GPU: its number and what it can do, read once.
type Device struct {
	Index int
	Name  string
	UUID  [16]byte
	PCI   string // "0000:1b:00"

	Major, Minor int // compute capability
	SMs          int
	ClockKHz     int
	MemoryBytes  int64
	L2Bytes      int64

	MemoryClockKHz, MemoryBusBits int

	WarpSize            int
	MaxThreadsPerBlock  int
	MaxThreadsPerSM     int
	MaxBlocksPerSM      int
	RegsPerSM           int
	SharedPerBlockBytes int // the most a block may have, after Function.SetDynamicShared
	SharedPerSMBytes    int
	SharedReservedBytes int // of each block, by the system

	Cooperative   bool // launches whose blocks are all resident
	Clusters      bool
	VirtualMemory bool // Reserve and AllocPhysical

	driver *Driver
	raw    driver.Device
}

// Devices returns all devices. None is ErrNoDevice.
func (d *Driver) Devices() ([]*Device, error) {
	var n int32
	if r := d.api.DeviceGetCount(&n); r != driver.Success {
		return nil, &Error{Call: "cuDeviceGetCount", Result: r}
	}
	if n <= 0 {
		return nil, &Error{Call: "cuDeviceGetCount", Result: driver.NoDevice}
	}
	all := make([]*Device, n)
	for i := range all {
		dev, err := d.Device(i)
		if err != nil {
			return nil, err
		}
		all[i] = dev
	}
	return all, nil
}

// Device returns device i, in the order of CUDA_VISIBLE_DEVICES.
func (d *Driver) Device(i int) (*Device, error) {
	dev := &Device{Index: i, driver: d}
	fail := func(call string, r driver.Result) (*Device, error) {
		return nil, &Error{Call: call, What: fmt.Sprintf("device %d", i), Result: r}
	}
	if int(int32(i)) != i {
		return fail("cuDeviceGet", driver.InvalidDevice)
	}
	if r := d.api.DeviceGet(&dev.raw, int32(i)); r != driver.Success {
		return fail("cuDeviceGet", r)
	}
	name := make([]byte, 256)
	if r := d.api.DeviceGetName(name, dev.raw); r != driver.Success {
		return fail("cuDeviceGetName", r)
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	dev.Name = string(name)
	if r := d.api.DeviceGetUuid(&dev.UUID, dev.raw); r != driver.Success {
		return fail("cuDeviceGetUuid", r)
	}
	var total uint64
	if r := d.api.DeviceTotalMem(&total, dev.raw); r != driver.Success {
		return fail("cuDeviceTotalMem", r)
	}
	dev.MemoryBytes = int64(total)
	if a, r := dev.readAttributes(); r != driver.Success {
		return fail(fmt.Sprintf("cuDeviceGetAttribute %d", a), r)
	}
	return dev, nil
}

// readAttributes returns the attribute that couldn't be read.
func (dev *Device) readAttributes() (driver.DeviceAttr, driver.Result) {
	var l2, coop, cluster, vmm, domain, bus, slot int
	for _, a := range []struct {
		attr driver.DeviceAttr
		to   *int
	}{
		{driver.DevCapabilityMajor, &dev.Major}, {driver.DevCapabilityMinor, &dev.Minor},
		{driver.DevSMs, &dev.SMs}, {driver.DevClockKHz, &dev.ClockKHz}, {driver.DevL2Bytes, &l2},
		{driver.DevMemoryClockKHz, &dev.MemoryClockKHz}, {driver.DevMemoryBusBits, &dev.MemoryBusBits},
		{driver.DevWarpSize, &dev.WarpSize}, {driver.DevMaxThreadsPerBlock, &dev.MaxThreadsPerBlock},
		{driver.DevMaxThreadsPerSM, &dev.MaxThreadsPerSM}, {driver.DevMaxBlocksPerSM, &dev.MaxBlocksPerSM},
		{driver.DevRegsPerSM, &dev.RegsPerSM}, {driver.DevSharedPerBlockOptin, &dev.SharedPerBlockBytes},
		{driver.DevSharedPerSM, &dev.SharedPerSMBytes}, {driver.DevReservedSharedBlock, &dev.SharedReservedBytes},
		{driver.DevCooperative, &coop}, {driver.DevCluster, &cluster}, {driver.DevVirtualMemory, &vmm},
		{driver.DevPCIDomain, &domain}, {driver.DevPCIBus, &bus}, {driver.DevPCIDevice, &slot},
	} {
		var v int32
		if r := dev.driver.api.DeviceGetAttribute(&v, a.attr, dev.raw); r != driver.Success {
			return a.attr, r
		}
		*a.to = int(v)
	}
	dev.L2Bytes = int64(l2)
	dev.Cooperative, dev.Clusters, dev.VirtualMemory = coop != 0, cluster != 0, vmm != 0
	dev.PCI = fmt.Sprintf("%04x:%02x:%02x", domain, bus, slot)
	return 0, driver.Success
}

// PeakBytesPerSecond is what the memory's clock and width allow: two transfers a clock.
func (dev *Device) PeakBytesPerSecond() float64 {
	return 2 * 1e3 * float64(dev.MemoryClockKHz) * float64(dev.MemoryBusBits) / 8
}

func (dev *Device) String() string {
	return fmt.Sprintf("%s (device %d, sm_%d%d, %d SMs, %d MiB)", dev.Name, dev.Index, dev.Major, dev.Minor, dev.SMs, dev.MemoryBytes>>20)
}
