//go:build amd64 && !noasm

package qgemm

// install puts in the assembly bodies of the level.
func (k *Kernels) install() {}
