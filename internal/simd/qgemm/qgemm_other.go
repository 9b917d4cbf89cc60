//go:build !amd64 || noasm

package qgemm

// install leaves the plain Go bodies in place: there are no others here.
func (k *Kernels) install() {}
