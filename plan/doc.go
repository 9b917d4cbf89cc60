// Package plan decides how one attention call of a batch is cut into work: a pure function of shape,
// lengths, device limits and policy. It knows no clock, no environment and no device, so a plan can be
// printed, reviewed as text and computed anywhere with the same result.
//
// # Terms
//
//   - A unit is a sequence, or a tile of its query rows, whose KV range may be cut.
//   - An [Item] is the work of one claim: one KV head of one unit over one token range, for all query
//     heads of the group. Items end on page boundaries or with their unit.
//   - A split is one of a unit's items per KV head. An unsplit unit writes its output directly; the
//     others write one State per split, query row and query head, which a [Merge] combines.
//   - Workers run one item at a time: CPU threads, or thread blocks resident on a GPU. A wave is as many
//     items as there are workers.
//   - Workers claim items in list order, which is long items first (LPT), so that short ones fill in at
//     the end.
//
// # Policies
//
// [None] never splits: the FlashAttention baseline. [Splits] cuts every sequence into the same number of
// pieces. [Fixed] cuts every N tokens counted from token 0, so that a sequence's arithmetic does not
// depend on what else is in the batch. [Auto] asks a cost model.
//
// # How Auto chooses
//
// The candidates are n = 1, 2, …: cut the longest unit into n equal pieces, every other one into as few
// equal pieces as makes none costlier. For each candidate the planner computes an upper bound of the time
// at which workers that claim in order are done (Graham's list-scheduling bound, taken over 64 cost
// classes of items, with ⌈items/workers⌉ × longest where that is less), and for no split a lower bound.
// The candidate with the least upper bound wins if that is at least 1/32 below the lower bound of not
// splitting. So Auto is never predicted to be slower than None, and whole waves win by themselves,
// because a part-filled last wave costs as much as a full one.
//
// The cost of an item is a fixed part plus tokens × the larger of read time and arithmetic time, plus
// its States. All of it is integer arithmetic, and a plan is built of sums over units, maxima, a
// histogram and prefix sums, so that a thread block can compute the same plan, bit for bit.
package plan
