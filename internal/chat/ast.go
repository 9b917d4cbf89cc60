package chat

// expr is an expression.
type expr interface {
	eval(r *run, s *scope) (value, error)
}

type (
	literal struct{ v value }
	nameOf  struct{ name string }
	attrOf  struct {
		obj  expr
		name string
	}
	itemOf  struct{ obj, key expr }
	sliceOf struct{ obj, lo, hi, step expr } // parts that are left out are nil
	unary   struct {
		op string // -, + or not
		x  expr
	}
	binary struct { // left to right: x op[0] y[0] op[1] y[1] …
		x   expr
		ops []string
		ys  []expr
	}
	comparison binary // a < b < c is a < b and b < c
	logic      struct {
		or bool
		xs []expr
	}
	choice struct{ test, yes, no expr } // no may be nil
	call   struct {
		fn expr
		arguments
	}
	filter struct {
		x    expr
		name string
		arguments
	}
	check struct {
		x       expr
		name    string
		negated bool
		arguments
	}
	listOf struct {
		items []expr
		tuple bool
	}
	dictOf struct{ keys, values []expr }

	// arguments are those of a call, as written.
	arguments struct {
		pos   []expr
		names []string
		kw    []expr
	}
)

// node is a piece of a template.
type node interface {
	exec(r *run, s *scope, out *output) error
}

type (
	textNode   struct{ text string }
	outputNode struct{ x expr }
	ifNode     struct {
		tests  []expr
		bodies [][]node // one more than tests if there is an else
	}
	forNode struct {
		targets   []string // several take a list apart
		over      expr
		filter    expr // or nil
		body      []node
		otherwise []node
		recursive bool
	}
	setNode struct {
		targets []target
		x       expr
	}
	setBlock struct {
		target  target
		body    []node
		filters expr // of what the body wrote, which is written, or nil
	}
	macroNode struct {
		name     string
		params   []string
		defaults []expr // nil: none
		body     []node
	}
	callNode struct {
		caller macroNode
		call   expr
	}
	filterBlock struct {
		body    []node
		filters expr
	}
	jumpNode struct{ err error }
)

// target is what a set assigns to: a name, or an attribute of a namespace.
type target struct{ name, attr string }
