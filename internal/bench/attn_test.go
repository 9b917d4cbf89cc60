package bench

import (
	"errors"
	"testing"

	"github.com/flashdecode/flashdecode/backend/cpu"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/weights/quant"
)

// attentionOutput prepares a and returns what the first and the last layer's attention yields. The output is read
// through Logits with an identity matrix, the way out of a backend's buffers.
func attentionOutput(t *testing.T, a *attention) (out []float32) {
	t.Helper()
	var err error
	if a.be, err = cpu.New(cpu.Options{Workers: 2}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := a.prepare(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	cols := a.t.QHeads * a.t.HeadDim
	eye := make([]byte, 4*cols*cols)
	for i := range cols {
		eye[4*(i*cols+i)+2], eye[4*(i*cols+i)+3] = 0x80, 0x3f // 1.0
	}
	w, err := a.be.Upload("identity", quant.F32, cols, cols, eye)
	if err != nil {
		t.Fatal(err)
	}
	rows := len(a.t.Lens)
	out = make([]float32, 2*rows*cols)
	for i, layer := range []int{0, a.layers - 1} {
		err := a.be.Begin(&a.batch)
		a.be.Attend(a.dst, a.q, a.kv, layer, &ops.Attention{Scale: 0.2})
		a.be.Logits(out[i*rows*cols:(i+1)*rows*cols], a.dst, w, 0)
		if err = errors.Join(err, a.be.End()); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
