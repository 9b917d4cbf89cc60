package weights_test

import (
	"errors"
	"testing"

	"github.com/flashdecode/flashdecode/weights"
)

// TestGuardOtherPanics: only memory faults inside the files are turned into errors.
func TestGuardOtherPanics(t *testing.T) {
	for name, cause := range map[string]func() error{
		"a bug":         func() error { var b []byte; _ = b[len(b)]; return nil },
		"a plain panic": func() error { panic("x") },
		"a nil pointer": func() error { var p *int; _ = *p; return nil },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was swallowed", name)
				}
			}()
			_ = weights.Guard(cause, nowhere{})
		}()
	}
	want := errors.New("x")
	if err := weights.Guard(func() error { return want }); err != want {
		t.Errorf("got %v, want the function's own error", err)
	}
	if err := weights.Fault(nil, nowhere{}); err != nil {
		t.Errorf("no panic: %v", err)
	}
}

// nowhere is a file that no address belongs to.
type nowhere struct{}

func (nowhere) FaultAt(uintptr) error { return nil }
