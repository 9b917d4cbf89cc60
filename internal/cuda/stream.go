package cuda

import (
	"fmt"
	"time"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Stream is a queue of work on the device.
type Stream struct{ handle }

// NewStream creates a stream. Priority 0 is the ordinary one; HighPriority's blocks are scheduled before those of
// other streams.
func (c *Context) NewStream(p Priority) (*Stream, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	var least, greatest int32
	if p == HighPriority {
		if r := c.api.CtxGetStreamPriorityRange(&least, &greatest); r != driver.Success {
			return nil, c.fail("cuCtxGetStreamPriorityRange", "", r)
		}
	}
	var raw driver.Stream
	if r := c.api.StreamCreateWithPriority(&raw, driver.StreamNonBlocking, greatest); r != driver.Success {
		return nil, c.fail("cuStreamCreateWithPriority", "", r)
	}
	s := &Stream{}
	s.open(c, kindStream, uint64(raw))
	return s, nil
}

// Priority of a stream.
type Priority int

const (
	NormalPriority Priority = iota
	HighPriority
)

// enter makes the stream's context current, if the stream is open; leave ends it.
func (s *Stream) enter() (driver.Stream, error) {
	raw, err := s.get()
	if err != nil {
		return 0, err
	}
	return driver.Stream(raw), s.ctx.enter()
}

func (s *Stream) leave() { s.ctx.leave() }

// Context returns the context of the stream.
func (s *Stream) Context() *Context { return s.ctx }

// enterIdle is enter for calls that would spoil a capture: they are refused while one is going on, whether it began
// on this stream or the stream joined it.
func (s *Stream) enterIdle(what string) (driver.Stream, error) {
	raw, err := s.enter()
	if err != nil {
		return 0, err
	}
	status := s.ctx.ints.Get().(*int32)
	defer s.ctx.ints.Put(status)
	err = s.ctx.fail("cuStreamIsCapturing", "", s.ctx.api.StreamIsCapturing(raw, status))
	if err == nil && *status != driver.CaptureStatusNone {
		err = fmt.Errorf("%w: %s", ErrCapture, what)
	}
	if err != nil {
		s.leave()
	}
	return raw, err
}

// Synchronize waits until all that was put into the stream has run, and returns what went wrong in it.
func (s *Stream) Synchronize() error {
	raw, err := s.enterIdle("Stream.Synchronize")
	if err != nil {
		return err
	}
	defer s.leave()
	return s.ctx.fail("cuStreamSynchronize", "", s.ctx.api.StreamSynchronize(raw))
}

// Done reports whether all that was put into the stream has run, without waiting.
func (s *Stream) Done() (bool, error) {
	raw, err := s.enterIdle("Stream.Done")
	if err != nil {
		return false, err
	}
	defer s.leave()
	return s.ctx.done("cuStreamQuery", s.ctx.api.StreamQuery(raw))
}

func (c *Context) done(call string, r driver.Result) (bool, error) {
	if r == driver.NotReady {
		return false, nil
	}
	return r == driver.Success, c.fail(call, "", r)
}

// Wait makes what is put into s from now on wait for the last Record of e, if there was one.
func (s *Stream) Wait(e *Event) error {
	ev, err := e.get()
	if err != nil {
		return err
	}
	raw, err := s.enter()
	if err != nil {
		return err
	}
	defer s.leave()
	return s.ctx.fail("cuStreamWaitEvent", "", s.ctx.api.StreamWaitEvent(raw, driver.Event(ev), 0))
}

// Record marks with e what was put into s so far.
func (s *Stream) Record(e *Event) error {
	ev, err := e.get()
	if err != nil {
		return err
	}
	raw, err := s.enter()
	if err != nil {
		return err
	}
	defer s.leave()
	return s.ctx.fail("cuEventRecord", "", s.ctx.api.EventRecord(driver.Event(ev), raw))
}

// Close destroys the stream; what is still in it runs to its end.
func (s *Stream) Close() error {
	return s.close("cuStreamDestroy", func(raw uint64) driver.Result { return s.ctx.api.StreamDestroy(driver.Stream(raw)) })
}

// Event is a mark in a stream.
type Event struct{ handle }

// NewEvent creates an event. Only timed ones can be asked with Since; the others are cheaper to wait for.
func (c *Context) NewEvent(timed bool) (*Event, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	flags := uint32(driver.EventDisableTiming)
	if timed {
		flags = driver.EventDefault
	}
	var raw driver.Event
	if r := c.api.EventCreate(&raw, flags); r != driver.Success {
		return nil, c.fail("cuEventCreate", "", r)
	}
	e := &Event{}
	e.open(c, kindEvent, uint64(raw))
	return e, nil
}

// Synchronize waits for the last Record of e.
func (e *Event) Synchronize() error {
	raw, err := e.get()
	if err != nil {
		return err
	}
	if err := e.ctx.enter(); err != nil {
		return err
	}
	defer e.ctx.leave()
	return e.ctx.fail("cuEventSynchronize", "", e.ctx.api.EventSynchronize(driver.Event(raw)))
}

// Done reports whether what the last Record marked has run.
func (e *Event) Done() (bool, error) {
	raw, err := e.get()
	if err != nil {
		return false, err
	}
	if err := e.ctx.enter(); err != nil {
		return false, err
	}
	defer e.ctx.leave()
	return e.ctx.done("cuEventQuery", e.ctx.api.EventQuery(driver.Event(raw)))
}

// Since returns the device's time from start to e, both timed and done.
func (e *Event) Since(start *Event) (time.Duration, error) {
	end, err := e.get()
	if err != nil {
		return 0, err
	}
	begin, err := start.get()
	if err != nil {
		return 0, err
	}
	if err := e.ctx.enter(); err != nil {
		return 0, err
	}
	defer e.ctx.leave()
	var ms float32
	r := e.ctx.api.EventElapsedTime(&ms, driver.Event(begin), driver.Event(end))
	return time.Duration(float64(ms) * 1e6), e.ctx.fail("cuEventElapsedTime", "", r)
}

// Close destroys the event; waits for it that are under way end as they should.
func (e *Event) Close() error {
	return e.close("cuEventDestroy", func(raw uint64) driver.Result { return e.ctx.api.EventDestroy(driver.Event(raw)) })
}
