//go:build amd64 && !noasm

package kvdot

import "github.com/flashdecode/flashdecode/internal/simd"

func bodyOf(simd.Level, Layout) body { return genericBody }
