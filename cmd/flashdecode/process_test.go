//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestMain lets the test binary stand in for the command: processes, pipes and signals need a real one.
func TestMain(m *testing.M) {
	if os.Getenv("FLASHDECODE_AS_COMMAND") != "" {
		main()
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("an emulator can't start a second one of itself, and emulated tests are -short")
	}
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Env = append(os.Environ(), "FLASHDECODE_AS_COMMAND=1")
	return c
}

// TestSignals: an interrupt in the middle of the text ends it with statistics and 130, a closed pipe ends it quietly,
// a full disk is an error.
func TestSignals(t *testing.T) {
	start := func() (*exec.Cmd, *bufio.Reader, io.Closer, *bytes.Buffer) {
		c := command(t, "run", "--temperature", "1", "--seed", "1", "-n", "16000", "Once upon a time")
		var errs bytes.Buffer
		c.Stderr = &errs
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(out)
		if _, err := r.Peek(5); err != nil {
			t.Fatal(err, errs.String())
		}
		return c, r, out, &errs
	}

	c, r, _, errs := start()
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	err := c.Wait()
	var exit *exec.ExitError
	// A story may end by itself before the signal arrives.
	switch s := errs.String(); {
	case err == nil && strings.Contains(s, "ended by stop"):
	case !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted || !strings.Contains(s, "ended by cancelled") || strings.Contains(s, "goroutine"):
		t.Errorf("interrupt: %v: %s", err, s)
	}

	c, _, out, errs := start()
	out.Close()
	err = c.Wait()
	if errors.As(err, &exit) {
		w := exit.Sys().(syscall.WaitStatus)
		if !(w.Signaled() && w.Signal() == syscall.SIGPIPE || w.ExitStatus() == exitClosed) {
			t.Errorf("closed pipe: %v", err)
		}
	}
	if strings.Contains(errs.String(), "goroutine") || strings.Contains(errs.String(), "flashdecode: ") {
		t.Errorf("closed pipe: %s", errs)
	}
}

func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer full.Close()
	c := command(t, "run")
	var errs bytes.Buffer
	c.Stdout, c.Stderr = full, &errs
	var exit *exec.ExitError
	if err := c.Run(); !errors.As(err, &exit) || exit.ExitCode() != exitError || !strings.Contains(errs.String(), "no space left") {
		t.Errorf("%v: %s", err, errs.String())
	}
}

// TestNoInput: without a terminal, as under CI, the first command tells its story.
func TestNoInput(t *testing.T) {
	c := command(t, "run", "-n", "5")
	out, err := c.Output() // standard input is the null device
	if err != nil || len(out) < 5 {
		t.Errorf("%q, %v", out, err)
	}
}
