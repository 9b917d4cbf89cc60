//go:build !amd64 || noasm

package pool

import "runtime"

// pause gives the processor to whoever needs it: without an instruction for it, a spin loop must yield.
func pause() { runtime.Gosched() }
