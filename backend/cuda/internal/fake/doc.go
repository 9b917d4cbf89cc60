// Package fake is the kernels of backend/cuda as Go functions, for the driver in Go (package cudatest): they read their
// argument blocks and the memory that those point to as the CUDA kernels do, compute with package attn, and refuse what
// the CUDA kernels could not do. So the host's packing, strides, tables, grids and workspaces are tested without a GPU.
package fake

import (
	"fmt"
	"strings"

	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
)

// Kernel is a kernel to register, by name.
type Kernel struct {
	Name string
	cudatest.Kernel
}

// Install registers the kernels and returns an image that has all of them.
func Install(d *cudatest.Driver, kernels ...[]Kernel) []byte {
	var names []string
	for _, list := range kernels {
		for _, k := range list {
			d.AddKernel(k.Name, k.Kernel)
			names = append(names, k.Name)
		}
	}
	return cudatest.Image(names...)
}

// refuse ends a kernel that was handed what it can't do: on a device it would compute nonsense, hang or fault.
func refuse(format string, args ...any) {
	panic("fake: " + fmt.Sprintf(format, args...))
}

// field returns what follows the given letters in a name: field("fd_x_d128_n8", "d") is 128.
func field(name, letters string) int {
	for _, part := range strings.Split(name, "_") {
		var n int
		if rest, ok := strings.CutPrefix(part, letters); ok {
			if _, err := fmt.Sscanf(rest, "%d", &n); err == nil {
				return n
			}
		}
	}
	refuse("kernel %s has no %s", name, letters)
	return 0
}
