// prefill: exact causal attention of many query tokens over the pages of a cache (FlashAttention tiling), and of a mixed
// batch: a decode token is an item with few rows, its KV range may be split. Reference: attn.Reference, attn.Merge.
//   q, out  [token][q head][head_dim]      rows of a KV head's group are packed: row r is token r / group, head r % group
//   states  O, (M, L) of items that are one split of several; the last of them to finish merges them in order of split
// grid (items, row tiles) or (token tiles, kv_heads, batch). This file: mma.sync, for every device; block 32 * kWarps.
// shared memory: Q [kM][D], then two times K [kN][D], then two times V [kN][D].
// Two barriers a tile: K of the next tile is copied behind S = Q K^T, V of the next one behind O += P V.
// Bound: tensor cores. A warp holds 32 query rows (16 for D = 256): with 16 it would wait for shared memory instead.
#pragma once
#include "prefill_finish.cuh"

namespace fd::prefill {

template <class T_, int D_, int MTiles_, int Warps_, int N_> struct Shape {
  using T = T_;
  static constexpr bool kPanels = false;
  static constexpr int D = D_, kWarps = Warps_, kCopyWarps = Warps_, kMTiles = MTiles_;
  static constexpr int kM = kWarps * kMTiles * 16, kN = N_, kThreads = kWarps * 32, kRowBytes = D * 2;
  static constexpr int kTileBytes = kN * kRowBytes, kQBytes = kM * kRowBytes, kSharedBytes = kQBytes + 4 * kTileBytes;
  static constexpr int kAccs = D / 8, kScores = kN / 8;  // 8-column tiles of O and S
};

// A lane's walk along pairs of chunks of its row: chunk 2*pair + second. Written so that a pair costs one instruction and no
// register: the twist only changes bits that the row's start leaves free (or, in rows of 192 bytes, the lower two of a chunk).
template <class S> struct Walk {
  uint32_t even, odd;
  DEV Walk(uint32_t tile, int row, int second) : even(tile + chunk_at<S, S::kN>(row, second)), odd(S::D == 96 ? tile + chunk_at<S, S::kN>(row, second + 2) : 0) {}
  DEV uint32_t at(int pair) const { return S::D == 96 ? (pair & 1 ? odd : even) + (pair >> 1) * 64 : even ^ (pair << 5); }
};

// s = Q K^T of the warp's rows and a tile of tokens.
template <class S> DEV void scores(Scores<S>& s, uint32_t q, uint32_t k) {
  const int lane = threadIdx.x % 32;
  UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int n = 0; n < S::kScores; n++) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.f;
  const Walk<S> q_walk(q, lane & 15, lane >> 4), k_walk(k, (lane & 7) + (lane >> 4 << 3), lane >> 3 & 1);
  UNROLL for (int d = 0; d < S::D / 16; d++) {
    uint32_t a[S::kMTiles][4];
    UNROLL for (int m = 0; m < S::kMTiles; m++) ldmatrix4(a[m], q_walk.at(d) + m * 16 * S::kRowBytes);
    UNROLL for (int n = 0; n < S::kScores; n += 2) {
      uint32_t b[4];
      ldmatrix4(b, k_walk.at(d) + n * 8 * S::kRowBytes);
      UNROLL for (int m = 0; m < S::kMTiles; m++) {
        half::mma<typename S::T>(s[m][n], a[m], b[0], b[1]);
        half::mma<typename S::T>(s[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// o += P V.
template <class S> DEV void weigh(State<S>& st, const Weights<S>& a, uint32_t v) {
  using T = typename S::T;
  const int lane = threadIdx.x % 32;
  const Walk<S> walk(v, lane & 15, lane >> 4);
  UNROLL for (int n = 0; n < S::kScores / 2; n++) UNROLL for (int d = 0; d < S::kAccs; d += 2) {
    uint32_t b[4];
    ldmatrix4_trans(b, walk.at(d / 2) + n * 16 * S::kRowBytes);
    UNROLL for (int m = 0; m < S::kMTiles; m++) {
      half::mma<T>(st.o[m][d], a[n][m], b[0], b[1]);
      half::mma<T>(st.o[m][d + 1], a[n][m], b[2], b[3]);
    }
  }
}

// All tiles of this CTA. Every warp copies, only warps with rows compute.
template <class S> DEV void attend(const FdDecodeParams& p, const Work& w, State<S>& st, uint32_t shared) {
  const int warp_row = threadIdx.x / 32 * S::kMTiles * 16;
  const bool active = warp_row < w.rows;
  const int end = w.end;
  if (w.first >= end) return;  // the State is empty
  const uint32_t q = shared, k = q + S::kQBytes, v = k + 2 * S::kTileBytes;
  SHARED_ARRAY(Span, commons, S::kWarps);  // not registers either
  Span& common = commons[threadIdx.x / 32];
  if (threadIdx.x % 32 == 0) common = common_span<S>(p, w, warp_row);
  __syncwarp();
  copy_rows<S, S::kM>(q, p.q, query_offset<S>(p, w), p.head_dim);
  uint64_t offset = token_offset<S>(w, w.first);
  copy_rows<S, S::kN>(k, w.k, offset, p.head_dim);
  cp_commit();
  copy_rows<S, S::kN>(v, w.v, offset, p.head_dim);
  cp_commit();
  offset = token_offset<S>(w, w.first + S::kN);
  NO_UNROLL for (int tile = w.first, stage = 0; tile < end; tile += S::kN, stage ^= 1) {
    const bool more = tile + S::kN < end;
    const uint32_t now = stage * S::kTileBytes, next = S::kTileBytes - now;
    cp_wait<1>();      // K of this tile; V of it may be under way
    __syncthreads();   // for everyone, and everyone is done with K and V of the tile before
    if (more) copy_rows<S, S::kN>(k + next, w.k, offset, p.head_dim);
    cp_commit();       // an empty group keeps the count of groups
    Weights<S> weights;
    if (active) {
      Scores<S> s;
      scores<S>(s, q + warp_row * S::kRowBytes, k + now);
      shape_scores<S>(p, w, s, tile, warp_row, common);
      Shrink<S> shrink;
      softmax<S, true>(st, s, shrink, factor_of(p));
      pack_weights<S>(weights, s);
    }
    if (!MUTANT(prefill_wait_short)) cp_wait<1>(); else cp_wait<2>();
    if (!MUTANT(prefill_v_barrier)) __syncthreads();
    if (more) copy_rows<S, S::kN>(v + next, w.v, offset, p.head_dim);
    cp_commit();
    offset = token_offset<S>(w, tile + 2 * S::kN);
    if (active) weigh<S>(st, weights, v + now);
  }
  cp_wait_all();
  close<S>(st);
}

template <class S> DEV void kernel(const FdDecodeParams& p) {
  SHARED_BYTES(shared);
  SHARED_ARRAY(Work, found, 1);  // not registers: the loop needs them all
  const Work& w = found[0];
  if (threadIdx.x == 0) find_work<S>(p, found[0]);
  __syncthreads();
  if (w.rows == 0) return;
  State<S> st;
  clear<S>(st);
  attend<S>(p, w, st, smem_u32(shared));
  if (w.splits == 0) return store_output<S>(p, w, st, smem_u32(shared));
  store_state<S>(p, w, st);
  if (p.flags & FD_PARTIALS) return;
  if (last_of(at<uint32_t>(p.counters) + w.counter, w.splits)) merge<S>(p, w);
}

}  // namespace fd::prefill
