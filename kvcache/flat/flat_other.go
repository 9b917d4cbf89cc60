//go:build !linux

package flat

// Arena is the physical memory. It can't be made on this system.
type Arena struct{}

// Range is one sequence's address range. It can't be made on this system.
type Range struct{}

// New returns ErrUnsupported.
func New(pages, pageBytes int) (*Arena, error) { return nil, ErrUnsupported }

func (a *Arena) Pages() int                           { return 0 }
func (a *Arena) PageBytes() int                       { return 0 }
func (a *Arena) Bytes() []byte                        { return nil }
func (a *Arena) Mappings() int                        { return 0 }
func (a *Arena) Resident() (int64, error)             { return 0, ErrUnsupported }
func (a *Arena) Reserve(maxPages int) (*Range, error) { return nil, ErrUnsupported }
func (a *Arena) Discard(page int32, n int) error      { return ErrUnsupported }
func (a *Arena) Close() error                         { return nil }

func (r *Range) MaxPages() int                      { return 0 }
func (r *Range) Bytes() []byte                      { return nil }
func (r *Range) Map(index int, pages []int32) error { return ErrUnsupported }
func (r *Range) Unmap(index, n int) error           { return ErrUnsupported }
func (r *Range) Close() error                       { return nil }
