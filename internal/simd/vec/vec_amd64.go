//go:build amd64 && !noasm

package vec

import "github.com/flashdecode/flashdecode/internal/simd"

func leavesOf(simd.Level) leaves { return generic }
