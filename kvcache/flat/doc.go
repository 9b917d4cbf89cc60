// Package flat gives every sequence of a paged KV memory one contiguous address range.
//
// Terms:
//   - The arena is the physical memory: Pages pages of PageBytes bytes, one Linux memory file.
//   - A range is address space reserved for one sequence, MaxPages·PageBytes long. Nothing in it can be touched
//     until a page of the arena is mapped there: a read or write beyond the mapped pages faults.
//   - A mapping is one piece of address space that the kernel keeps a record of. Consecutive pages need one
//     together, so a sequence with long runs (see package kvcache) costs few. Their number is limited per process
//     (vm.max_map_count).
//
// A token's address is then base + token·stride and a kernel needs no table. Mapping one page into two ranges
// shares a prefix. This is the scheme of vAttention (Prabhu et al., "vAttention: Dynamic Memory Management for
// Serving LLMs without PagedAttention", ASPLOS 2025), with the CPU's page tables in place of the GPU's.
//
// A system call per run costs microseconds, so mapping belongs ahead of a decode step, not in it. Memory
// files get huge pages only where /sys/kernel/mm/transparent_hugepage/shmem_enabled allows it, and many systems
// say never: there, anonymous memory with adjacent pages reads faster than a flat range.
//
// Only Linux has it. Elsewhere New returns ErrUnsupported and block tables, which need nothing of the system,
// are the way.
package flat

import "errors"

var (
	// ErrUnsupported says that this system has no flat mode: use block tables.
	ErrUnsupported = errors.New("flat: not supported on this system")
	// ErrMaps says that the process has no mapping left. Block tables need none; raising vm.max_map_count
	// gives more.
	ErrMaps = errors.New("flat: too many mappings")
	// ErrClosed says that the arena or range was closed.
	ErrClosed = errors.New("flat: closed")
)
