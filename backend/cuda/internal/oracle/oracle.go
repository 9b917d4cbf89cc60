// Package oracle runs the kernels that tests and benchmarks on a device need besides those they are about: random
// numbers that host and device agree on, attention in double precision, and a plain read of as many bytes.
package oracle

import (
	"fmt"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda"
)

// Functions finds kernels by symbol.
type Functions interface {
	Function(symbol string) (*cuda.Function, error)
}

// Oracle keeps what its launches need. Not safe for concurrent use.
type Oracle struct {
	fns  Functions
	fill map[string]*cuda.Launch
	ref  map[string]*cuda.Launch
	read map[int]*cuda.Launch

	fillArgs abi.FillParams
	refArgs  abi.ReferenceParams
	readArgs abi.ReadParams
}

// New returns an Oracle that finds its kernels in fns.
func New(fns Functions) *Oracle {
	return &Oracle{fns: fns, fill: map[string]*cuda.Launch{}, ref: map[string]*cuda.Launch{}, read: map[int]*cuda.Launch{}}
}

// launch finds or prepares a kernel of blocks of 256 threads.
func launch[K comparable](o *Oracle, all map[K]*cuda.Launch, key K, symbol string, arg cuda.Param) (*cuda.Launch, error) {
	if l := all[key]; l != nil {
		return l, nil
	}
	f, err := o.fns.Function(symbol)
	if err != nil {
		return nil, err
	}
	l, err := f.NewLaunch(arg)
	if err != nil {
		return nil, fmt.Errorf("oracle: %w", err)
	}
	l.Block = cuda.Dim3{X: 256}
	all[key] = l
	return l, nil
}

// Fill makes element i of dst, of a type "bf16", "f16" or "e4m3", scale·Unit(seed, first+i).
func (o *Oracle) Fill(s *cuda.Stream, typ string, dst cuda.Ptr, count, first int64, seed uint64, scale float32) error {
	l, err := launch(o, o.fill, typ, "fd_fill_"+typ, cuda.Arg(&o.fillArgs))
	if err != nil {
		return err
	}
	o.fillArgs = abi.FillParams{Dst: uint64(dst), Count: uint64(count), First: uint64(first), Seed: seed, Scale: scale}
	l.Grid = cuda.Dim3{X: uint32(min(4096, (count+255)/256))}
	return l.Run(s)
}

// Reference computes attention of what a decode kernel was given. Type is that of K and V. Scores are float64 [rows][heads]
// [maxKVLen], out is float32 [rows][heads][HeadDim], lse float32 [rows][heads].
func (o *Oracle) Reference(s *cuda.Stream, typ string, args abi.DecodeParams, seqs, qLen int, maxKVLen int64, scores, out, lse cuda.Ptr) error {
	l, err := launch(o, o.ref, typ, "fd_reference_"+typ, cuda.Arg(&o.refArgs))
	if err != nil {
		return err
	}
	o.refArgs = abi.ReferenceParams{Decode: args, Scores: uint64(scores), Out: uint64(out), LSE: uint64(lse), MaxKVLen: maxKVLen}
	l.Grid = cuda.Dim3{X: uint32(qLen), Y: uint32(args.KVHeads * args.Group), Z: uint32(seqs)}
	return l.Run(s)
}

// Read puts a read of bytes, a multiple of 16, into the stream: unroll loads of a thread under way, 4 or 8, in so many
// blocks. Sink is 4 bytes a block that are not written.
func (o *Oracle) Read(s *cuda.Stream, src cuda.Ptr, bytes int64, unroll, blocks int, sink cuda.Ptr) error {
	l, err := launch(o, o.read, unroll, fmt.Sprintf("fd_read_u%d", unroll), cuda.Arg(&o.readArgs))
	if err != nil {
		return err
	}
	o.readArgs = abi.ReadParams{Src: uint64(src), Count: uint64(bytes / 16), Sink: uint64(sink)}
	l.Grid = cuda.Dim3{X: uint32(blocks)}
	return l.Run(s)
}

// Unit is the number that fd::bench::unit makes on the device: nearly normal, deviation about 1.
func Unit(seed, i uint64) float32 {
	z := seed + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	sum := int64(z&0xffff) + int64(z>>16&0xffff) + int64(z>>32&0xffff) + int64(z>>48)
	return float32(sum-2*65535) * 2.6429e-5
}
