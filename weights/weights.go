package weights

import (
	"errors"

	"github.com/flashdecode/flashdecode/weights/quant"
)

// ErrNotFound is wrapped by the error for a tensor or a metadata key that a file does not have.
var ErrNotFound = errors.New("not found")

// ErrChanged is wrapped by the error for a file that was truncated or written to while mapped. What was
// read from it is not to be trusted; open it again.
var ErrChanged = errors.New("file was truncated or changed while mapped")

// Tensor is one tensor of a model file.
type Tensor struct {
	Name string
	Type quant.Type
	// Shape is row-major, the last dimension contiguous: a linear layer's weight is [out, in].
	Shape []int
	// Data holds the rows, one after the other, Type.RowBytes(last dimension) bytes each. Read only, and in
	// safetensors files at any address: do not reinterpret it as wider numbers.
	Data []byte
}

// Source hands out tensors by name. Implementations are safe for concurrent use.
type Source interface {
	// Tensor returns the tensor of that name. The error wraps ErrNotFound if there is none, and
	// quant.ErrType if its number format is not supported.
	Tensor(name string) (Tensor, error)
	// Names returns the names of all tensors, in the order of the file.
	Names() []string
}
