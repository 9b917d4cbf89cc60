//go:build linux || darwin

package flashdecode_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/internal/testkit"
)

// processorTime is what this process has used of all processors.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestIdle: 50 ms after its last step a model uses no processor, open, between streams, and with a stream that nobody
// reads any more. A worker that spun would use all of every 200 ms; the bound is far below and far above what the runtime's own
// goroutines take. How long it takes to get there depends on the machine, so one quiet interval in a minute is enough:
// workers that never park never have one.
func TestIdle(t *testing.T) {
	testkit.SkipEmulated(t, "the time that the processor spends is the emulator's")
	m := embedded(t, flashdecode.Threads(4))
	quiet := func(what string) {
		t.Helper()
		least := time.Hour
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			time.Sleep(50 * time.Millisecond)
			before := processorTime(t)
			time.Sleep(200 * time.Millisecond)
			if least = min(least, processorTime(t)-before); least < 10*time.Millisecond {
				return
			}
		}
		t.Errorf("%s: %v of processor time in 200 ms", what, least)
	}
	quiet("opened")
	if _, err := generate(m, []int32{300, 301}, flashdecode.MaxTokens(10)); err != nil {
		t.Fatal(err)
	}
	quiet("after a stream")
	n := 0
	for range m.GenerateTokens(t.Context(), []int32{300, 301}, flashdecode.MaxTokens(300), flashdecode.IgnoreEnd()) {
		if n++; n == 2 {
			wantIdle(t, m) // all tokens are waiting
			quiet("with a reader that stands still")
			break
		}
	}
	quiet("after leaving a stream")
}
