package attention

type itemPlanner struct{}

func (p *Plan) loadItems() (*itemPlanner, error) { return nil, nil }
func (p *Plan) plannable() bool                  { return p.items != nil }
func (p *Plan) plannerBytes() int64              { return 0 }
func (p *Plan) runItems(s *Stream) error         { return nil }
