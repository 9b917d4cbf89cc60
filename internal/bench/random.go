package bench

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/flashdecode/flashdecode/backend/cpu"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// randomSource makes random queries, keys and values the way a model makes them, as rows of matrices: the only way
// into a backend's buffers is through its operations.
type randomSource struct {
	rows    int
	seed    uint64
	q, k, v ops.Buf
	table   [3]ops.Weight // [rows, columns] of q, k, v
}

// init uploads the matrices and allocates the buffers.
func (s *randomSource) init(be *cpu.Backend, qCols, kvCols int) (err error) {
	r := rand.New(rand.NewPCG(s.seed, 2))
	for i, dst := range []*ops.Buf{&s.q, &s.k, &s.v} {
		cols := kvCols
		if i == 0 {
			cols = qCols
		}
		data := make([]byte, 4*s.rows*cols)
		for j := 0; j < len(data); j += 4 {
			binary.LittleEndian.PutUint32(data[j:], math.Float32bits(float32(r.NormFloat64())))
		}
		if s.table[i], err = be.Upload("random", quant.F32, s.rows, cols, data); err != nil {
			return err
		}
		if *dst, err = be.Alloc(s.rows, cols); err != nil {
			return err
		}
	}
	return nil
}

// step runs one step of b's sequences, with rows rows in all that begin at position pos, on random q, k and v.
// Positions that are set already stay.
func (s *randomSource) step(be *cpu.Backend, b *ops.Batch, rows, pos int, run func()) error {
	b.Tokens = make([]int32, rows)
	for i := range rows {
		b.Tokens[i] = int32(i)
		if len(b.Positions) < rows {
			b.Positions = append(b.Positions, int32(pos+i))
		}
	}
	if err := be.Begin(b); err != nil {
		return err
	}
	for i, dst := range []ops.Buf{s.q, s.k, s.v} {
		be.Embed(dst, s.table[i], 1)
	}
	run()
	return be.End()
}
