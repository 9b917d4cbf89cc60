package host

import (
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/cpu"
)

// Processor is what computes.
type Processor struct {
	Model    string   `json:"model"`
	CPUs     int      `json:"cpus"`     // that this process may use
	Features []string `json:"features"` // instruction sets that this program knows or plans to use
	Governor string   `json:"governor,omitempty"`
}

// CPU describes the processor.
func CPU() Processor {
	return Processor{
		Model: model(readFile("/proc/cpuinfo")), CPUs: runtime.NumCPU(), Features: features(),
		Governor: strings.TrimSpace(readFile("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
	}
}

func readFile(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(b)
}

// model is the processor's name in the text of /proc/cpuinfo, or else the architecture.
func model(cpuinfo string) string {
	if name := field(cpuinfo, "model name"); name != "" {
		return name
	}
	return runtime.GOARCH
}

// field is the value of the first line "key : value".
func field(text, key string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func features() (have []string) {
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"AVX2", cpu.X86.HasAVX2}, {"FMA", cpu.X86.HasFMA}, {"AVX512F", cpu.X86.HasAVX512F}, {"AVX512BW", cpu.X86.HasAVX512BW},
		{"AVX512DQ", cpu.X86.HasAVX512DQ}, {"AVX512VL", cpu.X86.HasAVX512VL}, {"AVX512VNNI", cpu.X86.HasAVX512VNNI},
		{"AVX512BF16", cpu.X86.HasAVX512BF16}, {"AMX-INT8", cpu.X86.HasAMXInt8}, {"AMX-BF16", cpu.X86.HasAMXBF16},
		{"ASIMD", cpu.ARM64.HasASIMD}, {"ASIMDDP", cpu.ARM64.HasASIMDDP}, {"SVE", cpu.ARM64.HasSVE},
	} {
		if f.has {
			have = append(have, f.name)
		}
	}
	return have
}
