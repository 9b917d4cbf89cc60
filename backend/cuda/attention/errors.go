package attention

import (
	"errors"
	"fmt"
)

// What errors of this package are by errors.Is. The error itself says what and names the remedy.
var (
	ErrUnsupported = errors.New("attention: unsupported")
	ErrCapacity    = errors.New("attention: beyond capacity")
	ErrWorkspace   = errors.New("attention: workspace too small")
	ErrPointer     = errors.New("attention: bad pointer")
	ErrFault       = errors.New("attention: bad lengths or table on the device")
)

// UnsupportedError says what no kernel does.
type UnsupportedError struct{ What string }

func (e *UnsupportedError) Error() string { return "attention: " + e.What }

// Is makes it an ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }

func unsupported(format string, args ...any) error {
	return &UnsupportedError{fmt.Sprintf(format, args...)}
}

// CapacityError says what was more than a Plan was made for, or than any Plan can be made for.
type CapacityError struct {
	What     string
	Got, Max int64
}

func (e *CapacityError) Error() string {
	return fmt.Sprintf("attention: %d %s: want 1 to %d; more need a Plan of larger capacity", e.Got, e.What, e.Max)
}

// Is makes it an ErrCapacity.
func (e *CapacityError) Is(target error) bool { return target == ErrCapacity }

// WorkspaceError gives both numbers.
type WorkspaceError struct{ Need, Have int64 }

func (e *WorkspaceError) Error() string {
	return fmt.Sprintf("attention: workspace of %d bytes, needs %d (Plan.WorkspaceBytes)", e.Have, e.Need)
}

// Is makes it an ErrWorkspace.
func (e *WorkspaceError) Is(target error) bool { return target == ErrWorkspace }

// PointerError names an address or a stride that kernels can't use.
type PointerError struct {
	Name  string
	Value uint64
	Align int // what it has to be a multiple of
}

func (e *PointerError) Error() string {
	if e.Value == 0 {
		return fmt.Sprintf("attention: %s is null", e.Name)
	}
	return fmt.Sprintf("attention: %s is %#x, not a multiple of %d", e.Name, e.Value, e.Align)
}

// Is makes it an ErrPointer.
func (e *PointerError) Is(target error) bool { return target == ErrPointer }

// FaultError is what checked mode found on the device: the first bad sequence by number.
type FaultError struct {
	Seq  int
	What string
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("attention: sequence %d: %s; it was treated as empty", e.Seq, e.What)
}

// Is makes it an ErrFault.
func (e *FaultError) Is(target error) bool { return target == ErrFault }
