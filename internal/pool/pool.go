package pool

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Task is the body of a parallel region. Chunks of one region run concurrently, in any order.
type Task interface {
	// Chunk computes chunk i on the worker of that number; worker 0 is the caller of Run.
	Chunk(worker, i int)
}

// linger is how long workers spin after a step before they park: longer than the sampling between two decode steps,
// far below the 50 ms after which an idle engine must be silent.
const linger = 2 * time.Millisecond

// The claim word packs everything a worker must see at one instant, so that a worker that comes late from an older
// region can never claim a chunk of a newer one with the older task: epoch | total | next.
const (
	countBits = 20
	countMask = 1<<countBits - 1
	// MaxChunks is the largest number of chunks of a region.
	MaxChunks = countMask
)

func pack(epoch uint64, total int) uint64 { return epoch<<(2*countBits) | uint64(total)<<countBits }

func remaining(state uint64) bool { return state&countMask < state>>countBits&countMask }

// Pool is n workers, the caller of Run being one of them. One goroutine at a time may call its methods.
type Pool struct {
	n int

	state atomic.Uint64
	_     [56]byte // the claim word is written by all, so it has a cache line to itself
	done  atomic.Int64
	_     [56]byte

	region atomic.Pointer[Region]
	epoch  uint64
	active atomic.Bool // between Begin and End
	faults bool        // the caller's own SetPanicOnFault, restored by End
	idleAt atomic.Int64
	fault  atomic.Pointer[Fault]

	waiting atomic.Bool // the caller sleeps until the last chunk is done
	wake    chan struct{}

	mu     sync.Mutex
	cond   *sync.Cond // parked workers wait here
	parked atomic.Int32
	closed bool
	group  sync.WaitGroup
}

// Region is a Task made ready to run, once and for all, so that starting it allocates nothing.
type Region struct{ task Task }

// NewRegion prepares t.
func NewRegion(t Task) *Region { return &Region{t} }

// Fault is a panic in a Task, most likely an access to a mapped file that was truncated.
type Fault struct {
	Value any
	Stack []byte
}

func (f *Fault) Error() string { return fmt.Sprintf("pool: task panicked: %v", f.Value) }

// New starts n-1 workers beside the caller. n below 1 counts as 1.
func New(n int) *Pool {
	n = max(n, 1)
	p := &Pool{n: n, wake: make(chan struct{}, 1)}
	p.cond = sync.NewCond(&p.mu)
	p.group.Add(n - 1)
	for i := 1; i < n; i++ {
		go p.work(i)
	}
	return p
}

// Workers is the number of workers, the caller included.
func (p *Pool) Workers() int { return p.n }

// Begin wakes the workers for a number of regions that will follow one another closely.
func (p *Pool) Begin() {
	p.faults = debug.SetPanicOnFault(true)
	p.active.Store(true)
	if p.parked.Load() > 0 {
		p.mu.Lock()
		p.cond.Broadcast()
		p.mu.Unlock()
	}
}

// End lets the workers come to rest and returns the first panic of a task since the last End, nil if none.
func (p *Pool) End() *Fault {
	p.idleAt.Store(time.Now().UnixNano())
	p.active.Store(false)
	debug.SetPanicOnFault(p.faults)
	return p.fault.Swap(nil)
}

// Faulted reports whether a task panicked since Begin: what the regions so far have written is not to be trusted.
func (p *Pool) Faulted() bool { return p.fault.Load() != nil }

// Run executes chunks 0 … n-1 of r and returns when all are done. A panic in a chunk ends that chunk only; End
// reports it.
func (p *Pool) Run(r *Region, n int) {
	if n <= 0 {
		return
	}
	if n > MaxChunks {
		panic("pool: too many chunks in a region")
	}
	if n == 1 || p.n == 1 {
		for i := range n {
			p.chunk(r.task, 0, i)
		}
		return
	}
	p.region.Store(r)
	p.done.Store(0)
	p.epoch++
	p.state.Store(pack(p.epoch, n))
	p.drain(0)
	p.wait(int64(n))
}

// wait returns when n chunks are done. It spins first: usually a chunk of a microsecond is all that is missing. If
// not, its worker has lost its processor, and the caller must give its own away rather than spin against it.
func (p *Pool) wait(n int64) {
	for range 4000 {
		if p.done.Load() == n {
			return
		}
		pause()
	}
	for p.done.Load() != n {
		p.waiting.Store(true)
		if p.done.Load() == n && p.waiting.CompareAndSwap(true, false) {
			return
		}
		<-p.wake // may come from the last chunk of an older region, hence the loop
	}
}

// drain claims and runs chunks of the current region until none is left.
func (p *Pool) drain(worker int) {
	for {
		s := p.state.Load()
		if !remaining(s) {
			return
		}
		r := p.region.Load() // belongs to s if the claim succeeds: stored before s, and fixed while s has chunks
		if !p.state.CompareAndSwap(s, s+1) {
			continue
		}
		p.chunk(r.task, worker, int(s&countMask))
		total := int64(s >> countBits & countMask)
		if p.done.Add(1) == total && p.waiting.CompareAndSwap(true, false) {
			p.wake <- struct{}{}
		}
	}
}

func (p *Pool) chunk(t Task, worker, i int) {
	defer p.catch()
	t.Chunk(worker, i)
}

func (p *Pool) catch() {
	if v := recover(); v != nil {
		p.fault.CompareAndSwap(nil, &Fault{v, debug.Stack()})
	}
}

// work is the life of a worker.
func (p *Pool) work(i int) {
	defer p.group.Done()
	debug.SetPanicOnFault(true) // a truncated mapped file becomes an error of the step, not a crash
	for {
		p.drain(i)
		for spins := 1; !remaining(p.state.Load()); spins++ {
			pause()
			if spins%256 == 0 && p.resting() && !p.park() {
				return
			}
		}
	}
}

// resting reports that no step runs and none did for a while.
func (p *Pool) resting() bool {
	return !p.active.Load() && time.Now().UnixNano()-p.idleAt.Load() > int64(linger)
}

// park sleeps until the next Begin; false means that the pool was closed.
func (p *Pool) park() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked.Add(1)
	for !p.closed && !p.active.Load() {
		p.cond.Wait()
	}
	p.parked.Add(-1)
	return !p.closed
}

// Close ends the workers and waits for them.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.cond.Broadcast()
	p.mu.Unlock()
	p.active.Store(false)
	p.group.Wait()
}
