package cuda_test

import (
	"fmt"

	"github.com/flashdecode/flashdecode/internal/cuda"
	"github.com/flashdecode/flashdecode/internal/cuda/cudatest"
)

// Scale is a kernel's parameters, laid out as its C struct.
type Scale struct {
	X      cuda.Ptr
	N      int32
	Factor float32
}

// A kernel is loaded, launched, and launched again from a graph, here on a driver in Go; on a GPU cuda.Open takes the
// place of cuda.New.
func Example() {
	fake := cudatest.New(cudatest.Options{})
	fake.AddKernel("fd_scale", cudatest.Kernel{Params: []int{16}, Run: func(c *cudatest.Call) {
		p := cudatest.Arg[Scale](c, 0)
		x := cudatest.Load[float32](c, p.X, int(p.N))
		for i := range x {
			x[i] *= p.Factor
		}
		cudatest.Store(c, p.X, x)
	}})
	if err := scale(fake); err != nil {
		fmt.Println(err)
	}
	fmt.Println("left open:", fake.Leaks())
	// Output:
	// [2 4 6]
	// [20 40 60]
	// left open: []
}

func scale(fake *cudatest.Driver) error {
	drv, err := cuda.New(fake)
	if err != nil {
		return err
	}
	dev, err := drv.Device(0)
	if err != nil {
		return err
	}
	ctx, err := dev.Open()
	if err != nil {
		return err
	}
	defer ctx.Close()
	stream, err := ctx.NewStream(cuda.NormalPriority)
	if err != nil {
		return err
	}
	defer stream.Close()
	mod, err := ctx.LoadModule(cudatest.Image("fd_scale"))
	if err != nil {
		return err
	}
	defer mod.Close()
	kernel, err := mod.Function("fd_scale")
	if err != nil {
		return err
	}
	x := []float32{1, 2, 3}
	buf, err := ctx.Alloc(int64(4 * len(x)))
	if err != nil {
		return err
	}
	defer buf.Close()
	if err := stream.Upload(buf.Ptr(), cuda.AsBytes(x)); err != nil {
		return err
	}

	params := Scale{X: buf.Ptr(), N: int32(len(x)), Factor: 2}
	launch, err := kernel.NewLaunch(cuda.Arg(&params))
	if err != nil {
		return err
	}
	launch.Grid, launch.Block = cuda.Dim3{X: 1}, cuda.Dim3{X: 128}
	if err := launch.Run(stream); err != nil {
		return err
	}
	if err := stream.Download(cuda.AsBytes(x), buf.Ptr()); err != nil {
		return err
	}
	fmt.Println(x)

	params.Factor = 10 // arguments are read by Run: recorded here, not at the replay
	graph, err := stream.Capture(func() error { return launch.Run(stream) })
	if err != nil {
		return err
	}
	defer graph.Close()
	exec, err := graph.Instantiate()
	if err != nil {
		return err
	}
	defer exec.Close()
	if err := exec.Launch(stream); err != nil {
		return err
	}
	if err := stream.Download(cuda.AsBytes(x), buf.Ptr()); err != nil {
		return err
	}
	fmt.Println(x)
	return nil
}
