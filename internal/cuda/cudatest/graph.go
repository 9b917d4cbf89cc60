package cudatest

import (
	"maps"
	"slices"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// capture is a recording that is going on. The order in which operations were put in, whatever the stream, keeps all
// dependencies: replaying runs them in that order.
type capture struct {
	origin  *stream
	thread  int
	mode    int32
	ops     []operation
	count   map[*stream]int  // operations of each stream that takes part
	known   map[*stream]seen // what each depends on
	spoiled bool
	ended   bool
}

// seen is how many operations of each stream come before.
type seen map[*stream]int

func (c *capture) add(s *stream, op operation) {
	c.ops = append(c.ops, op)
	c.count[s]++
	c.known[s][s] = c.count[s]
}

// record marks a place in the capture; it adds no operation.
func (c *capture) record(e *event, s *stream) Result {
	if c.spoiled {
		return driver.StreamCaptureInvalidated
	}
	at := maps.Clone(c.known[s])
	e.captured, e.of, e.recorded = &at, c, false
	return driver.Success
}

// waitCaptured joins s to the capture of e, or makes it depend on it there.
func waitCaptured(s *stream, e *event) Result {
	c := s.capture
	switch {
	case e.of == nil: // work in the capture would depend on work outside
		c.spoiled = true
		return driver.StreamCaptureIsolation
	case e.of.ended:
		return driver.CapturedEvent
	case c != nil && c != e.of:
		c.spoiled = true
		return driver.StreamCaptureMerge
	case e.of.spoiled:
		return driver.StreamCaptureInvalidated
	}
	c = e.of
	if s.capture == nil {
		s.capture = c
		c.known[s] = seen{}
		c.count[s] = 0
	}
	for st, n := range *e.captured {
		c.known[s][st] = max(c.known[s][st], n)
	}
	return driver.Success
}

// spoil is the answer to what can't be done during a capture.
func (c *capture) spoil() Result {
	c.spoiled = true
	return driver.StreamCaptureUnsupported
}

// spoilEvent is the answer to asking about an event that was recorded in a capture.
func (c *capture) spoilEvent() Result {
	if !c.ended {
		c.spoiled = true
	}
	return driver.CapturedEvent
}

// outside is on for functions that a thread which captures may not call.
func (d *Driver) outside(name string, f func(*context) Result) Result {
	return d.on(name, func(c *context) Result {
		for _, s := range d.streams {
			if k := s.capture; k != nil && k.mode == driver.CaptureThreadLocal && k.thread == thread() {
				return k.spoil()
			}
		}
		return f(c)
	})
}

func (d *Driver) StreamBeginCapture(id driver.Stream, mode int32) Result {
	return d.onStream("cuStreamBeginCapture", id, func(s *stream) Result {
		if s.capture != nil {
			return driver.IllegalState
		}
		s.capture = &capture{origin: s, thread: thread(), mode: mode, count: map[*stream]int{s: 0}, known: map[*stream]seen{s: {}}}
		return driver.Success
	})
}

func (d *Driver) StreamEndCapture(id driver.Stream, g *driver.Graph) Result {
	return d.onStream("cuStreamEndCapture", id, func(s *stream) Result {
		c := s.capture
		switch {
		case c == nil:
			return driver.IllegalState
		case c.origin != s:
			c.spoiled = true
			return driver.StreamCaptureUnmatched
		case c.thread != thread():
			return driver.StreamCaptureWrongThread
		}
		c.ended = true
		r := driver.Success
		for st, n := range c.count {
			st.capture = nil
			if c.known[s][st] < n {
				r = driver.StreamCaptureUnjoined
			}
		}
		if c.spoiled {
			r = driver.StreamCaptureInvalidated
		}
		if r != driver.Success {
			return r
		}
		*g = driver.Graph(d.handle())
		d.graphs[*g] = &graph{s.ctx, c.ops}
		return driver.Success
	})
}

func (d *Driver) StreamIsCapturing(id driver.Stream, status *int32) Result {
	return d.onStream("cuStreamIsCapturing", id, func(s *stream) Result {
		*status = driver.CaptureStatusNone
		if s.capture != nil {
			*status = 1
			if s.capture.spoiled {
				*status = 2
			}
		}
		return driver.Success
	})
}

// graph is recorded work, instantiated or not.
type graph struct {
	ctx *context
	ops []operation
}

func (g *graph) owner() *context { return g.ctx }

func (d *Driver) GraphInstantiateWithFlags(e *driver.Exec, id driver.Graph, _ uint64) Result {
	return d.on("cuGraphInstantiateWithFlags", func(c *context) Result {
		g := d.graphs[id]
		if g == nil {
			return driver.InvalidHandle
		}
		*e = driver.Exec(d.handle())
		d.execs[*e] = &graph{c, slices.Clone(g.ops)}
		return driver.Success
	})
}

func (d *Driver) onExec(name string, id driver.Exec, s driver.Stream, f func(*graph, *stream)) Result {
	return d.onStream(name, s, func(s *stream) Result {
		g := d.execs[id]
		if g == nil || g.ctx != s.ctx {
			return driver.InvalidHandle
		}
		f(g, s)
		return driver.Success
	})
}

func (d *Driver) GraphUpload(id driver.Exec, s driver.Stream) Result {
	return d.onExec("cuGraphUpload", id, s, func(*graph, *stream) {})
}

func (d *Driver) GraphLaunch(id driver.Exec, s driver.Stream) Result {
	return d.onExec("cuGraphLaunch", id, s, func(g *graph, s *stream) {
		for _, op := range g.ops {
			d.put(s, op)
		}
	})
}

func (d *Driver) GraphExecDestroy(id driver.Exec) Result {
	return d.on("cuGraphExecDestroy", func(*context) Result { return remove(d.execs, id) })
}

func (d *Driver) GraphDestroy(id driver.Graph) Result {
	return d.on("cuGraphDestroy", func(*context) Result { return remove(d.graphs, id) })
}

// remove deletes what must be there.
func remove[K comparable, V any](m map[K]V, k K) Result {
	if _, ok := m[k]; !ok {
		return driver.InvalidHandle
	}
	delete(m, k)
	return driver.Success
}

func (d *Driver) GraphGetNodes(id driver.Graph, n *uint64) Result {
	return d.on("cuGraphGetNodes", func(*context) Result {
		g := d.graphs[id]
		if g == nil {
			return driver.InvalidHandle
		}
		*n = uint64(len(g.ops))
		return driver.Success
	})
}
