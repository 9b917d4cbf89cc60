package cuda

import (
	"errors"

	"github.com/flashdecode/flashdecode/internal/cuda/driver"
)

// Graph is recorded work.
type Graph struct{ handle }

// Capture records what f puts into s, instead of running it. Arguments are recorded as they are at each Run, so the
// graph's launches repeat them. Inside f nothing may wait for the device, nor allocate; other streams join with
// Record and Wait, and have to be joined back the same way.
func (s *Stream) Capture(f func() error) (g *Graph, err error) {
	raw, err := s.enterIdle("Stream.Capture") // until the end: a capture belongs to a thread
	if err != nil {
		return nil, err
	}
	defer s.leave()
	c := s.ctx
	if r := c.api.StreamBeginCapture(raw, driver.CaptureThreadLocal); r != driver.Success {
		return nil, c.fail("cuStreamBeginCapture", "", r)
	}
	ended := false
	end := func() (driver.Graph, driver.Result) {
		ended = true
		var raw2 driver.Graph
		c.api.CtxSetCurrent(c.raw) // f may have worked on another device
		r := c.api.StreamEndCapture(raw, &raw2)
		return raw2, r
	}
	defer func() {
		if !ended { // f panicked
			if g, r := end(); r == driver.Success {
				c.api.GraphDestroy(g)
			}
		}
	}()
	ferr := f()
	graph, r := end()
	err = c.fail("cuStreamEndCapture", "", r)
	if ferr != nil || err != nil {
		if r == driver.Success {
			c.api.GraphDestroy(graph)
		}
		return nil, errors.Join(ferr, err)
	}
	g = &Graph{}
	g.open(c, kindGraph, uint64(graph))
	return g, nil
}

// Nodes returns the number of recorded operations.
func (g *Graph) Nodes() (int, error) {
	raw, err := g.get()
	if err != nil {
		return 0, err
	}
	if err := g.ctx.enter(); err != nil {
		return 0, err
	}
	defer g.ctx.leave()
	var n uint64
	r := g.ctx.api.GraphGetNodes(driver.Graph(raw), &n)
	return int(n), g.ctx.fail("cuGraphGetNodes", "", r)
}

// Instantiate makes the graph ready to launch. The Exec is independent of it.
func (g *Graph) Instantiate() (*Exec, error) {
	raw, err := g.get()
	if err != nil {
		return nil, err
	}
	c := g.ctx
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	var ex driver.Exec
	if r := c.api.GraphInstantiateWithFlags(&ex, driver.Graph(raw), 0); r != driver.Success {
		return nil, c.fail("cuGraphInstantiateWithFlags", "", r)
	}
	e := &Exec{}
	e.open(c, kindExec, uint64(ex))
	return e, nil
}

// Close destroys the graph.
func (g *Graph) Close() error {
	return g.close("cuGraphDestroy", func(raw uint64) driver.Result { return g.ctx.api.GraphDestroy(driver.Graph(raw)) })
}

// Exec is a graph ready to launch. It runs once at a time: a launch waits for the one before.
type Exec struct{ handle }

// Upload moves what the launch needs to the device, so that the first launch is as fast as the others.
func (e *Exec) Upload(s *Stream) error { return e.do("cuGraphUpload", s, driver.API.GraphUpload) }

// Launch puts the graph's work into s.
func (e *Exec) Launch(s *Stream) error { return e.do("cuGraphLaunch", s, driver.API.GraphLaunch) }

func (e *Exec) do(call string, s *Stream, f func(driver.API, driver.Exec, driver.Stream) driver.Result) error {
	ex, err := e.get()
	if err != nil {
		return err
	}
	raw, err := s.enter()
	if err != nil {
		return err
	}
	defer s.leave()
	return s.ctx.fail(call, "", f(s.ctx.api, driver.Exec(ex), raw))
}

// Close destroys the Exec. Launches of it must have ended.
func (e *Exec) Close() error {
	return e.close("cuGraphExecDestroy", func(raw uint64) driver.Result { return e.ctx.api.GraphExecDestroy(driver.Exec(raw)) })
}
