package testkit

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// Within fails if f does not return in time: what hangs must not hang the whole run. It panics, as clean-up would hang, too.
func Within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		buf := make([]byte, 1<<20)
		panic(fmt.Sprintf("%s hangs:\n%s", what, buf[:runtime.Stack(buf, true)]))
	}
}
