// Package kvmem is the memory of a KV cache in flat mode on a GPU: pages without addresses of their own, mapped one after
// the other into the address range of each sequence, so that a kernel finds a token by base + token·stride and reads no
// table. The idea is vAttention's (Prabhu et al., "vAttention: Dynamic memory management for serving LLMs without
// PagedAttention", ASPLOS 2025), with the driver's stock granule of 2 MiB.
//
// # Terms
//
//   - A page is a number, 0 … Pages-1, as package kvcache hands them out. It has memory from when it is first bound
//     until it is released.
//   - A range is reserved addresses for one sequence: RangePages slots of PageBytes.
//   - Binding maps a page into a slot. One page may be in slots of many ranges: that is how prefixes are shared.
//   - A spare is memory that belongs to no page yet, mapped ahead into the slot after a range's last page. When the
//     sequence grows by a fresh page, the page takes the spare and nothing has to be mapped: a goroutine of the Memory's
//     maps the next one meanwhile. So mapping, tens of microseconds in the driver, is not part of a step.
//   - The window is one more range, in which every page has a fixed slot. Pages are mapped there when someone asks for
//     their address (copies, block tables).
//
// Nothing may touch a slot that nothing is bound to: the device would end the context. Kernels that read [0, length) of a
// range never do.
package kvmem
