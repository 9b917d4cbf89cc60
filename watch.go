package flashdecode

import (
	"time"

	"github.com/flashdecode/flashdecode/model"
	"github.com/flashdecode/flashdecode/ops"
)

// watched is a model whose file must stay as it was opened. A file that was truncated faults where it is read, but
// not always: what is left of its last page reads as zeros, and a file that is overwritten reads as something else.
type watched struct {
	model *model.Model
	file  modelFile
	next  time.Time // when to look at the file again
}

// watchEvery is how long a changed file may go unnoticed. Looking takes a microsecond.
const watchEvery = 100 * time.Millisecond

// Forward implements engine.Model.
func (w *watched) Forward(b *ops.Batch, kv ops.KV, rows []int32, logits []float32) error {
	if err := w.model.Forward(b, kv, rows, logits); err != nil {
		return err
	}
	now := time.Now()
	if now.Before(w.next) {
		return nil
	}
	if err := w.file.Check(); err != nil {
		return err // and so in every step to come
	}
	w.next = now.Add(watchEvery)
	return nil
}

// evict is told of bytes that were repacked, for good: whether they were the right ones is checked in this step.
func (w *watched) evict(data []byte) {
	w.next = time.Time{}
	w.file.Evict(data)
}
