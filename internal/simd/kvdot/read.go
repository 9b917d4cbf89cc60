package kvdot

import "unsafe"

// Read reads every byte of the tiles in the order of off and does nothing with them: the bandwidth that
// Fold is measured against.
func (k *Kernels) Read(base unsafe.Pointer, off []int64) {
	if len(off) > 0 {
		k.body.read(k.layout, base, off)
	}
}
