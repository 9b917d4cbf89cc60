// Package bench times decode attention on a GPU, in the way that its peers are timed: what is measured is device time
// per launch, from a CUDA graph of many launches that is replayed, with keys and values that rotate over half a gigabyte,
// so that every read misses the cache; the median of 11 replays.
//
// # Terms
//
//   - A cell is one batch and shape. A grid is a list of cells, by name.
//   - A variant is an algorithm with suffixes: split1_pdl is split1 as a link of a dependent-launch chain, split1_flat
//     reads pages that follow each other through base addresses, split1_contig a cache without pages, split1_p64 pages of
//     64 tokens. Without a suffix: a block table, pages of 16 tokens in random order.
//   - A set is K and V of one cell. As many sets as make up half a gigabyte take turns, as the layers of a model do; they
//     share one block table.
//   - The floor is the time of a kernel that only reads as many bytes, measured in the same run.
//   - The error is ‖out-want‖/‖want‖ (Frobenius) against attention in double precision on the same inputs.
package bench
