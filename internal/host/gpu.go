package host

import (
	"os"
	"path/filepath"
	"strings"
)

// GPUs is what files tell about NVIDIA GPUs.
type GPUs struct {
	Driver  string   `json:"driver,omitempty"`  // version of the kernel's driver
	Library string   `json:"library,omitempty"` // where libcuda is
	Names   []string `json:"names"`
}

// FindGPUs looks below root, which is "/" but in tests.
func FindGPUs(root string) GPUs {
	g := GPUs{Driver: driverVersion(readFile(filepath.Join(root, "proc/driver/nvidia/version")))}
	cards, _ := filepath.Glob(filepath.Join(root, "proc/driver/nvidia/gpus/*/information"))
	for _, c := range cards {
		g.Names = append(g.Names, field(readFile(c), "Model"))
	}
	for _, dir := range []string{"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64", "usr/lib/wsl/lib"} {
		lib := filepath.Join(root, dir, "libcuda.so.1")
		if _, err := os.Stat(lib); err == nil {
			g.Library = lib
			break
		}
	}
	return g
}

// driverVersion finds the number in "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …".
func driverVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	for _, w := range strings.Fields(line) {
		if w[0] >= '0' && w[0] <= '9' && strings.Contains(w, ".") {
			return w
		}
	}
	return ""
}
