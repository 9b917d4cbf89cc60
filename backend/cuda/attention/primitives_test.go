package attention

import (
	"errors"
	"testing"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/verify"
	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/kernels"
	"github.com/flashdecode/flashdecode/kernels/primtest"
)

// TestDevicePrimitives holds the device to the formulae that the emulator of the kernels is held to. It comes last: a
// primitive that is used wrongly takes the context with it.
func TestDevicePrimitives(t *testing.T) {
	drv, ctx := verify.Open(t)
	r := &rig{t: t, ctx: ctx}
	var err error
	r.stream, err = ctx.NewStream(cuda.NormalPriority)
	must(t, err)
	r.ks, err = Load(ctx)
	must(t, err)
	in, tests, err := primtest.Read()
	must(t, err)
	args := [2]uint64{uint64(upload(r, in))}
	var c verify.Count
	for i := range tests {
		x := &tests[i]
		if ctx.Lost() != nil {
			break
		}
		c.Run(t, x.Name, func(t *testing.T) { primitive(t, r, x, &args) })
	}
	if ctx.Lost() == nil {
		must(t, c.Write(drv, ctx.Device(), r.ks.Images()))
	}
	for _, b := range r.bufs {
		must(t, b.Close())
	}
	must(t, errors.Join(r.ks.Close(), r.stream.Close(), ctx.Close()))
}

func primitive(t *testing.T, r *rig, x *primtest.Test, args *[2]uint64) {
	f, err := r.ks.Function(x.Symbol())
	if errors.Is(err, kernels.ErrNoKernel) && x.SM90 && r.ctx.Device().Major < 9 {
		t.Skip("needs sm_90")
	}
	must(t, err)
	out := r.alloc(int64(4 * len(x.Want)))
	must(t, r.stream.Fill32(out, 0, int64(len(x.Want))))
	args[1] = uint64(out)
	l, err := f.NewLaunch(cuda.Arg(args))
	must(t, err)
	l.Grid, l.Block, l.SharedBytes, l.PDL = cuda.Dim3{X: uint32(x.Blocks)}, cuda.Dim3{X: uint32(x.Threads)}, x.SharedBytes, x.Dependent
	if x.ClusterBlocks > 1 {
		l.Cluster = cuda.Dim3{X: uint32(x.ClusterBlocks)}
	}
	must(t, l.Run(r.stream))
	if x.Dependent {
		must(t, l.Run(r.stream))
	}
	must(t, r.stream.Synchronize())
	if err := x.Check(download[uint32](r, out, len(x.Want))); err != nil {
		t.Error(err)
	}
}
