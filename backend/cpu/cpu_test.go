package cpu

import (
	"runtime"
	"testing"

	"github.com/flashdecode/flashdecode/backend/backendtest"
	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/flashdecode/flashdecode/ops"
)

func TestConformance(t *testing.T) {
	for _, l := range simd.Levels() {
		if testing.Short() && l != simd.Detect() {
			continue // the race detector and emulators are a hundred times slower
		}
		for _, fileOrder := range []bool{false, true} {
			if testing.Short() && fileOrder {
				continue
			}
			name := l.String()
			if fileOrder {
				name += "/file"
			}
			t.Run(name, func(t *testing.T) {
				backendtest.Run(t, backendtest.Options{
					New:         func() (ops.Backend, error) { return New(Options{Workers: 2, Level: &l, FileOrder: fileOrder}) },
					Activations: 1.0 / 254,
					Few:         l != simd.Detect() || fileOrder || l == simd.Generic || testing.Short(),
				})
			})
		}
	}
}

func TestConformanceFlat(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("flat mode needs Linux")
	}
	backendtest.Run(t, backendtest.Options{
		New:         func() (ops.Backend, error) { return New(Options{Workers: 2}) },
		Activations: 1.0 / 254,
		Few:         true,
		Flat:        true,
	})
}
