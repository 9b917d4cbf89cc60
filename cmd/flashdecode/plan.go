package main

import (
	"runtime"

	"github.com/flashdecode/flashdecode/internal/bench"
	"github.com/flashdecode/flashdecode/ops"
	"github.com/flashdecode/flashdecode/plan"
	"github.com/flashdecode/flashdecode/weights/quant"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// shapeFlags describe attention: by a model, or by numbers.
type shapeFlags struct {
	model           string
	qHeads, kvHeads int
	headDim         int
}

func (s *shapeFlags) register(fs *pflag.FlagSet) {
	fs.StringVarP(&s.model, "model", "m", "", "take heads and head dimension from this model")
	fs.IntVar(&s.qHeads, "q-heads", 32, "query heads")
	fs.IntVar(&s.kvHeads, "kv-heads", 8, "key/value heads")
	fs.IntVar(&s.headDim, "head-dim", 128, "dimensions of a head")
}

// shape returns the shape with keys and values of type kv.
func (s *shapeFlags) shape(kv quant.Type) (plan.Shape, error) {
	if s.model != "" {
		src, err := bench.Open(s.model)
		if err != nil {
			return plan.Shape{}, err
		}
		s.qHeads, s.kvHeads, s.headDim = src.Config.QHeads, src.Config.KVHeads, src.Config.HeadDim
		if err := src.Close(); err != nil {
			return plan.Shape{}, err
		}
	}
	if err := s.checkHeads(); err != nil {
		return plan.Shape{}, err
	}
	if s.headDim < 1 {
		return plan.Shape{}, usagef("--head-dim is %d: want at least 1", s.headDim)
	}
	if err := checkHeadDim(kv, s.headDim); err != nil {
		return plan.Shape{}, err
	}
	return plan.Shape{
		QHeads: s.qHeads, KVHeads: s.kvHeads, HeadDim: s.headDim, PageSize: bench.PageSize,
		TokenBytes: 2 * kv.RowBytes(s.headDim), Causal: true,
	}, nil
}

// mostHeads is what a plan takes.
const mostHeads = 1 << 16

// checkHeads refuses heads that don't share keys and values evenly.
func (s *shapeFlags) checkHeads() error {
	switch {
	case s.qHeads < 1 || s.qHeads > mostHeads:
		return usagef("--q-heads is %d: want 1 to %d", s.qHeads, mostHeads)
	case s.kvHeads < 1:
		return usagef("--kv-heads is %d: want 1 to %d (--q-heads)", s.kvHeads, s.qHeads)
	case s.qHeads%s.kvHeads != 0:
		return usagef("--q-heads: %d query heads are not a multiple of %d KV heads (--kv-heads)", s.qHeads, s.kvHeads)
	}
	return nil
}

// kvType reads a format of the KV cache.
func kvType(name string) (quant.Type, error) {
	t, err := ops.ParseKVType(name)
	if err != nil {
		return 0, usagef("--kv: %q is not one of f16, bf16, f32, q8_0", name)
	}
	return t, nil
}

// checkHeadDim refuses a format that can't store the heads: Q8_0 stores them in blocks of 32.
func checkHeadDim(kv quant.Type, headDim int) error {
	if headDim%kv.BlockSize() == 0 {
		return nil
	}
	return usagef("--kv: %v stores blocks of %d, which heads of %d don't fill: choose f16", kv, kv.BlockSize(), headDim)
}

// fitsHeads is checkHeadDim for a model.
func fitsHeads(src *bench.Source, kv quant.Type) error { return checkHeadDim(kv, src.Config.HeadDim) }

type planFlags struct {
	shapeFlags
	page, qLen, batch        int
	kv, lens, device, policy string
	json                     bool
}

func (a *app) planCommand() *cobra.Command {
	f := &planFlags{}
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show how attention is cut into work, and why",
		Long: `Plans one layer's attention of a batch on a device, computes what the plan costs by the planner's model, and prints
items, waves, imbalance, workspace and the reason for the choice. Nothing runs: any device can be asked about.`,
		Example: `  flashdecode plan --lens 64k --device cpu:8
  flashdecode plan --q-heads 32 --kv-heads 8 --head-dim 128 --lens 32k,512x7 --device h200
  flashdecode plan -m model.gguf --lens 8k --batch 4 --policy fixed:1024 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.plan(f) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.register(fs)
	fs.IntVar(&f.page, "page-size", bench.PageSize, "tokens of a page")
	fs.StringVar(&f.kv, "kv", "f16", "number format of the KV cache: f16, bf16, f32 or q8_0")
	fs.StringVar(&f.lens, "lens", "8k", "lengths of the batch's sequences: 64k, or 32k,512x7; 0 is an empty place in a padded batch")
	fs.IntVar(&f.batch, "batch", 1, "repeat the lengths this often")
	fs.IntVar(&f.qLen, "q-len", 1, "query rows of each sequence")
	fs.StringVar(&f.device, "device", "cpu", "cpu, cpu:N (threads), h200, a100 or SMs=N")
	fs.StringVar(&f.policy, "policy", "auto", "auto, none, fixed:N (tokens) or splits:S")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func (a *app) plan(f *planFlags) error {
	kv, err := kvType(f.kv)
	if err != nil {
		return err
	}
	lim, err := plan.ParseLimits(f.device, runtime.GOMAXPROCS(0))
	if err != nil {
		return badFlag("device", err)
	}
	pol, err := plan.ParsePolicy(f.policy)
	if err != nil {
		return badFlag("policy", err)
	}
	lens, err := parseBatch(f.lens, ",")
	if err != nil {
		return badFlag("lens", err)
	}
	if f.batch < 1 || f.batch > 1<<16/len(lens) {
		return usagef("--batch is %d: want at least 1 and at most %d sequences in all", f.batch, 1<<16)
	}
	if f.qLen < 1 || f.qLen > mostTokens {
		return usagef("--q-len is %d: want 1 to %d", f.qLen, mostTokens)
	}
	shape, err := f.shape(kv)
	if err != nil {
		return err
	}
	shape.PageSize = f.page
	var seqs []plan.Seq
	for range f.batch {
		for _, n := range lens {
			if 0 < n && n < f.qLen {
				return usagef("--q-len is %d: a sequence of %d tokens has no room for them, since lengths include the query's tokens (0 is an empty place in the batch)", f.qLen, n)
			}
			seqs = append(seqs, plan.Seq{QLen: int32(f.qLen), KVLen: int32(n)})
		}
	}
	r, err := plan.NewReport(shape, seqs, lim, pol)
	if err != nil {
		return usagef("%w", err)
	}
	if f.json {
		return a.printJSON(r)
	}
	return a.print(r.String())
}
