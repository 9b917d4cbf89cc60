package cudatest

import (
	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// operation is work in a stream.
type operation func(c *context) *fault

type stream struct {
	id    driver.Stream
	ctx   *context
	queue []operation
	ran   uint64 // operations that left the queue

	capture *capture
}

func (s *stream) owner() *context { return s.ctx }
func (e *event) owner() *context  { return e.ctx }

// mark is a position in a stream: what had been put into it.
type mark struct {
	stream *stream
	seq    uint64
}

func (s *stream) mark() mark { return mark{s, s.ran + uint64(len(s.queue))} }

type event struct {
	ctx      *context
	timed    bool
	recorded bool
	at       mark
	when     int64    // ns, once the mark was passed
	captured *seen    // if it was last recorded in a capture
	of       *capture // which
}

// advance runs s up to seq.
func (d *Driver) advance(s *stream, seq uint64) Result {
	for s.ran < seq && len(s.queue) > 0 {
		op := s.queue[0]
		s.queue = s.queue[1:]
		s.ran++
		d.clock += 1000
		if f := op(s.ctx); f != nil {
			d.lose(s.ctx, f.result, f.why)
		}
	}
	return s.ctx.lost
}

// finish runs all of s.
func (d *Driver) finish(s *stream) Result { return d.advance(s, s.mark().seq) }

// step runs one operation, and reports whether there was one.
func (d *Driver) step(s *stream) bool {
	if len(s.queue) == 0 {
		return false
	}
	d.advance(s, s.ran+1)
	return true
}

// onStream is on for functions that take a stream.
func (d *Driver) onStream(name string, id driver.Stream, f func(*stream) Result) Result {
	return d.on(name, func(c *context) Result {
		s := d.streams[id]
		if s == nil || s.ctx != c {
			return driver.InvalidHandle
		}
		return f(s)
	})
}

// enqueue puts an operation into a stream, or into the capture that is going on there.
func (d *Driver) enqueue(name string, id driver.Stream, build func(*stream) (operation, Result)) Result {
	return d.onStream(name, id, func(s *stream) Result {
		if s.capture != nil && s.capture.spoiled {
			return driver.StreamCaptureInvalidated
		}
		op, r := build(s)
		if r != driver.Success {
			if s.capture != nil {
				s.capture.spoiled = true
			}
			return r
		}
		d.put(s, op)
		return driver.Success
	})
}

func (d *Driver) put(s *stream, op operation) {
	if s.capture != nil {
		s.capture.add(s, op)
		return
	}
	s.queue = append(s.queue, op)
	if d.options.Eager {
		d.finish(s)
	}
}

func (d *Driver) StreamCreateWithPriority(s *driver.Stream, flags uint32, priority int32) Result {
	return d.on("cuStreamCreateWithPriority", func(c *context) Result {
		*s = driver.Stream(d.handle())
		d.streams[*s] = &stream{id: *s, ctx: c}
		return driver.Success
	})
}

func (d *Driver) StreamDestroy(id driver.Stream) Result {
	return d.onStream("cuStreamDestroy", id, func(s *stream) Result {
		if s.capture != nil {
			s.capture.spoiled = true
		}
		d.finish(s)
		delete(d.streams, id)
		return s.ctx.lost
	})
}

func (d *Driver) StreamSynchronize(id driver.Stream) Result {
	return d.onStream("cuStreamSynchronize", id, func(s *stream) Result {
		if s.capture != nil {
			return s.capture.spoil()
		}
		return d.finish(s)
	})
}

// StreamQuery answers NotReady as long as there was something to do, and does a part of it.
func (d *Driver) StreamQuery(id driver.Stream) Result {
	return d.onStream("cuStreamQuery", id, func(s *stream) Result {
		if s.capture != nil {
			return s.capture.spoil()
		}
		if d.step(s) && s.ctx.lost == driver.Success {
			return driver.NotReady
		}
		return s.ctx.lost
	})
}

// onEvent is on for functions that take an event.
func (d *Driver) onEvent(name string, id driver.Event, f func(*event) Result) Result {
	return d.on(name, func(c *context) Result {
		e := d.events[id]
		if e == nil || e.ctx != c {
			return driver.InvalidHandle
		}
		return f(e)
	})
}

func (d *Driver) EventCreate(e *driver.Event, flags uint32) Result {
	return d.on("cuEventCreate", func(c *context) Result {
		*e = driver.Event(d.handle())
		d.events[*e] = &event{ctx: c, timed: flags&driver.EventDisableTiming == 0}
		return driver.Success
	})
}

func (d *Driver) EventDestroy(id driver.Event) Result {
	return d.onEvent("cuEventDestroy", id, func(*event) Result { delete(d.events, id); return driver.Success })
}

func (d *Driver) EventRecord(id driver.Event, sid driver.Stream) Result {
	return d.onEvent("cuEventRecord", id, func(e *event) Result {
		s := d.streams[sid]
		if s == nil || s.ctx != e.ctx {
			return driver.InvalidHandle
		}
		if s.capture != nil {
			return s.capture.record(e, s)
		}
		e.captured, e.of, e.recorded, e.when = nil, nil, true, 0
		d.put(s, func(*context) *fault { e.when = d.clock; return nil })
		e.at = s.mark()
		return driver.Success
	})
}

// StreamWaitEvent makes a stream depend on what e marks now, whatever e marks later.
func (d *Driver) StreamWaitEvent(sid driver.Stream, id driver.Event, _ uint32) Result {
	return d.onEvent("cuStreamWaitEvent", id, func(e *event) Result {
		s := d.streams[sid]
		if s == nil || s.ctx != e.ctx {
			return driver.InvalidHandle
		}
		if s.capture != nil || e.of != nil {
			return waitCaptured(s, e)
		}
		if e.recorded {
			at := e.at
			d.put(s, func(*context) *fault { d.advance(at.stream, at.seq); return nil })
		}
		return driver.Success
	})
}

// passed runs an event's stream, by a step or up to the mark, and reports whether it got there.
func (d *Driver) passed(e *event, wait bool) (bool, Result) {
	switch {
	case e.of != nil:
		return false, e.of.spoilEvent()
	case !e.recorded || e.at.stream.ran >= e.at.seq:
		return true, e.ctx.lost
	case wait:
		d.advance(e.at.stream, e.at.seq)
		return true, e.ctx.lost
	}
	d.step(e.at.stream)
	return false, e.ctx.lost
}

func (d *Driver) EventSynchronize(id driver.Event) Result {
	return d.onEvent("cuEventSynchronize", id, func(e *event) Result {
		_, r := d.passed(e, true)
		return r
	})
}

func (d *Driver) EventQuery(id driver.Event) Result {
	return d.onEvent("cuEventQuery", id, func(e *event) Result {
		ok, r := d.passed(e, false)
		if !ok && r == driver.Success {
			return driver.NotReady
		}
		return r
	})
}

// EventElapsedTime tells operations: each takes a µs, and kernels what they ask for.
func (d *Driver) EventElapsedTime(ms *float32, start, end driver.Event) Result {
	return d.onEvent("cuEventElapsedTime", end, func(e *event) Result {
		b := d.events[start]
		switch {
		case b == nil || !b.timed || !e.timed || !b.recorded || !e.recorded:
			return driver.InvalidHandle
		case b.at.stream.ran < b.at.seq || e.at.stream.ran < e.at.seq:
			return driver.NotReady
		}
		*ms = float32(float64(e.when-b.when) / 1e6)
		return driver.Success
	})
}
