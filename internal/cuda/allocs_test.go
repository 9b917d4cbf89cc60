//go:build linux && (amd64 || arm64) && !race

package cuda

import "testing"

// TestNoAllocsThroughC is TestNoAllocs with the C calls in it. Not under the race detector, where sync.Pool forgets.
func TestNoAllocsThroughC(t *testing.T) {
	l, s, x := recorded(t)
	for name, f := range map[string]func() error{
		"Run": func() error { return l.Run(s) }, "Launch": func() error { return x.Launch(s) },
		"Fill": func() error { return s.Fill(1, 2, 3) }, "Synchronize": s.Synchronize,
	} {
		if n := testing.AllocsPerRun(500, func() {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
