package cudatest

import (
	"maps"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Spec is a device. Its attributes may be changed before it is handed to New.
type Spec struct {
	Name        string
	MemoryBytes int64
	GPCs        []int // SMs of each: the blocks of a cluster run on one
	Attributes  map[driver.DeviceAttr]int
}

// H200 is an NVIDIA H200 SXM, as one answers (TestDeviceAttributes compares).
func H200() Spec {
	return Spec{
		Name: "NVIDIA H200", MemoryBytes: 150_109_880_320, GPCs: []int{16, 16, 16, 16, 16, 16, 18, 18},
		Attributes: attributes(map[driver.DeviceAttr]int{
			driver.DevCapabilityMajor: 9, driver.DevSMs: 132, driver.DevL2Bytes: 60 << 20,
			driver.DevClockKHz: 1_980_000, driver.DevMemoryClockKHz: 3_201_000, driver.DevMemoryBusBits: 6016,
			driver.DevSharedPerSM: 233_472, driver.DevSharedPerBlockOptin: 232_448, driver.DevCluster: 1,
		}),
	}
}

// A100 is an NVIDIA A100 with 80 GB, from its data sheet: no clusters, no programmatic launches.
func A100() Spec {
	return Spec{
		Name: "NVIDIA A100-SXM4-80GB", MemoryBytes: 85_094_825_984, GPCs: []int{16, 16, 16, 16, 14, 14, 16},
		Attributes: attributes(map[driver.DeviceAttr]int{
			driver.DevCapabilityMajor: 8, driver.DevSMs: 108, driver.DevL2Bytes: 40 << 20,
			driver.DevClockKHz: 1_410_000, driver.DevMemoryClockKHz: 1_593_000, driver.DevMemoryBusBits: 5120,
			driver.DevSharedPerSM: 167_936, driver.DevSharedPerBlockOptin: 166_912,
		}),
	}
}

// attributes adds what both have.
func attributes(a map[driver.DeviceAttr]int) map[driver.DeviceAttr]int {
	all := map[driver.DeviceAttr]int{
		driver.DevMaxThreadsPerBlock: 1024, driver.DevMaxGridX: 1<<31 - 1, driver.DevMaxGridY: 65535, driver.DevMaxGridZ: 65535,
		driver.DevSharedPerBlock: 48 << 10, driver.DevWarpSize: 32, driver.DevECC: 1, driver.DevPCIBus: 0x1b,
		driver.DevMaxThreadsPerSM: 2048, driver.DevMaxBlocksPerSM: 32, driver.DevRegsPerSM: 65536, driver.DevReservedSharedBlock: 1024,
		driver.DevCooperative: 1, driver.DevVirtualMemory: 1,
	}
	maps.Copy(all, a)
	return all
}

// blocksPerSM is how many blocks of a kernel an SM holds: the least of what threads, registers, shared memory and
// the SM's slots allow (CUDA C++ programming guide, occupancy; registers go to warps in units of 256).
func (s *Spec) blocksPerSM(k *Kernel, threads, dynamic int) int {
	at := s.Attributes
	if threads <= 0 || threads > at[driver.DevMaxThreadsPerBlock] || k.SharedBytes+dynamic > at[driver.DevSharedPerBlockOptin] {
		return 0
	}
	warps := (threads + 31) / 32
	n := min(at[driver.DevMaxBlocksPerSM], at[driver.DevMaxThreadsPerSM]/(32*warps))
	if k.Regs > 0 {
		n = min(n, at[driver.DevRegsPerSM]/((k.Regs*32+255)/256*256)/warps)
	}
	shared := (k.SharedBytes + dynamic + at[driver.DevReservedSharedBlock] + 127) / 128 * 128
	return min(n, at[driver.DevSharedPerSM]/shared)
}

// clusters is how many clusters of size blocks are resident at once, perSM blocks to an SM: at most, because a GPU
// answers less (an H200 with blocks of one thread 528, 124 and 58 for clusters of 2, 8 and 16).
func (s *Spec) clusters(perSM, size int) (n int) {
	for _, sms := range s.GPCs {
		n += sms * perSM / size
	}
	return n
}
