package plan

// Shape is the geometry that a call's sequences share.
type Shape struct {
	QHeads     int  `json:"q_heads"`
	KVHeads    int  `json:"kv_heads"` // divides QHeads
	HeadDim    int  `json:"head_dim"`
	ValueDim   int  `json:"value_dim,omitempty"` // 0 means HeadDim
	PageSize   int  `json:"page_size"`           // tokens
	TokenBytes int  `json:"token_bytes"`         // K and V of one token and one KV head
	Causal     bool `json:"causal"`              // a query tile ends with its last row's position
}

// Seq is one sequence of the batch. Row i of its QLen query rows has position KVLen-QLen+i.
type Seq struct {
	QLen  int32 `json:"q_len"`
	KVLen int32 `json:"kv_len"` // tokens in the cache, the query's own included
	First int32 `json:"first"`  // first token that any row attends: not 0 with a window
}

// Item is one claim of work: query rows Row … Row+Rows-1 of all query heads of KVHead, over tokens
// First … First+Count-1. A row attends the part of them that its own position and window allow. Count
// is 0 for a sequence without tokens: its output still has to be written.
type Item struct {
	Seq    int32 `json:"seq"`
	KVHead int32 `json:"kv_head"`
	Row    int32 `json:"row"`
	Rows   int32 `json:"rows"`
	First  int32 `json:"first"`
	Count  int32 `json:"count"`
	State  int32 `json:"state"` // first of Rows·Group slots, [row][head of group]; -1: output directly
	Merge  int32 `json:"merge"` // index of the Merge it takes part in, or -1
}

// Merge is one segment of consecutive State slots: the splits of one unit and KV head, in the order of
// their tokens, which is the order to merge them in. Split s, row r and head g of the group is at slot
// State + (s·Rows+r)·Group + g.
type Merge struct {
	Seq    int32 `json:"seq"`
	KVHead int32 `json:"kv_head"`
	Row    int32 `json:"row"`
	Rows   int32 `json:"rows"`
	State  int32 `json:"state"`
	Splits int32 `json:"splits"`
}

// Plan is the work of one attention call.
type Plan struct {
	Items   []Item  `json:"items"`  // in the order to claim them
	Merges  []Merge `json:"merges"` // by sequence, tile and KV head
	States  int     `json:"states"` // slots in use
	Workers int     `json:"workers"`

	// WorkspaceBytes is what States slots of ValueDim+2 float32 (O, M, L) take.
	WorkspaceBytes int64 `json:"workspace_bytes"`
	// EstNS is the model's prediction of the whole call.
	EstNS int64 `json:"est_ns"`
	// Imbalance is the predicted end of the last worker over the mean time that a worker is busy:
	// 1 is perfect, Workers is one worker doing everything.
	Imbalance float64 `json:"imbalance"`
	Reason    Reason  `json:"reason"`
}

// Waves is the number of items over the number of workers.
func (p *Plan) Waves() float64 { return float64(len(p.Items)) / float64(p.Workers) }

// stateBytes is the size of one State slot.
func (s Shape) stateBytes() int64 {
	if s.ValueDim == 0 {
		return int64(s.HeadDim+2) * 4
	}
	return int64(s.ValueDim+2) * 4
}

// macs is the multiply-adds of one query row and one token: a dot product and a weighted sum.
func (s Shape) macs() int64 {
	if s.ValueDim == 0 {
		return 2 * int64(s.HeadDim)
	}
	return int64(s.HeadDim) + int64(s.ValueDim)
}
