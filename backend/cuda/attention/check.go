package attention

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/flashdecode/flashdecode/backend/cuda/internal/abi"
	"github.com/flashdecode/flashdecode/internal/cuda"
)

// faults are what fd_check finds, by number.
var faults = [...]string{1: "its length is negative or beyond capacity", 2: "its query offsets descend, or are beyond capacity",
	3: "its table is too short for its length, or its offsets descend", 4: "its table names a page that does not exist"}

// checker runs fd_check.
type checker struct {
	launch *cuda.Launch
	params abi.CheckParams
	fault  *cuda.HostBuffer // two words, written by the device
}

func (p *Plan) loadCheck() (*checker, error) {
	f, err := p.ks.Function("fd_check")
	if err != nil {
		return nil, err
	}
	k := &checker{}
	if k.launch, err = f.NewLaunch(cuda.Arg(&k.params)); err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	k.launch.Block = cuda.Dim3{X: 128}
	if k.fault, err = p.ks.ctx.AllocHost(64); err != nil {
		return nil, fmt.Errorf("attention: %w", err)
	}
	clear(k.fault.Bytes())
	return k, nil
}

// runCheck puts the check into the stream and makes attention use the checked copies.
func (p *Plan) runCheck(s *Stream) error {
	k, d, st, l := p.check, &p.params, &p.step, &p.layout
	k.params = abi.CheckParams{
		KVLen: d.KVLen, QIndptr: d.QIndptr, Table: d.Table, TableIndptr: d.TableIndptr,
		KVLenOut: l.kvLen.at(p.workspace), QIndptrOut: l.qIndptr.at(p.workspace), TableIndptrOut: l.tableIndptr.at(p.workspace),
		Fault: uint64(k.fault.Ptr()), Seqs: int32(st.Seqs), MaxKVLen: int32(p.checkedLen()),
		QLen: int32(st.QLen), QRows: int32(cmp.Or(st.Rows, st.Seqs*st.QLen)), TableStride: d.TableStride,
		Entries: int32(p.entries()), PageSize: max(d.PageSize, 1), Pages: int32(p.cfg.Pages),
	}
	k.launch.Grid = cuda.Dim3{X: uint32(st.Seqs)}
	if err := k.launch.Run(s); err != nil {
		return fmt.Errorf("attention: %w", err)
	}
	d.KVLen = k.params.KVLenOut
	if d.QIndptr != 0 {
		d.QIndptr = k.params.QIndptrOut
	}
	if d.TableIndptr != 0 {
		d.TableIndptr = k.params.TableIndptrOut
	}
	return nil
}

// checkedLen is the longest that a sequence may be. Lengths that the host knew, it has looked at; the device may have others.
func (p *Plan) checkedLen() int {
	if p.step.Lens != nil {
		return p.maxLen
	}
	return cmp.Or(p.step.MaxLen, p.cfg.KVLen)
}

// entries is the capacity of a CSR table.
func (p *Plan) entries() int64 {
	c := &p.cfg
	if c.Entries > 0 || c.Address != BlockTable {
		return int64(c.Entries)
	}
	return min(1<<31-1, int64(c.Seqs)*int64((c.KVLen+c.PageSize-1)/c.PageSize))
}

// Fault returns what checked mode found since the last call, a *FaultError, or nil. It looks and does not wait: what
// the device has not reached yet shows later.
func (p *Plan) Fault() error {
	if p.check == nil {
		return nil
	}
	words := (*[2]uint32)(unsafe.Pointer(&p.check.fault.Bytes()[0]))
	what := atomic.LoadUint32(&words[0])
	if what == 0 {
		return nil
	}
	seq := atomic.LoadUint32(&words[1])
	atomic.StoreUint32(&words[0], 0)
	e := &FaultError{Seq: int(seq), What: fmt.Sprintf("fault %d", what)}
	if int(what) < len(faults) {
		e.What = faults[what]
	}
	return e
}
