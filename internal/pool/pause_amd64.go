//go:build amd64 && !noasm

package pool

// pause tells the core that this is a spin loop, so that it saves power and leaves the loop without a penalty.
func pause()
