// prefill by warpgroups (wgmma, sm_90a). Work, parameters and results as in prefill.cuh.
// block 384: warpgroups 0 and 1 compute 64 packed rows each, 2 copies. shared memory: Q [kM], then two times K [kN], then two
// times V [kN], each as panels of 64 elements (wgmma.cuh).
// A computing warpgroup issues S of a tile and O += P V of the tile before together, and does the softmax of S while the second
// of them runs. The two warpgroups take turns to issue, so that one's softmax falls into the other's products.
// Bound: tensor cores.
#pragma once
#include "prefill_finish.cuh"
#include "wgmma.cuh"

namespace fd::prefill {

template <class T_, int D_, int N_> struct GroupShape {
  using T = T_;
  static constexpr bool kPanels = true;
  static constexpr int D = D_, kWarps = 8, kCopyWarps = 4, kMTiles = 1, kM = 128, kN = N_, kThreads = 384;
  static constexpr int kPanelCount = (D + 63) / 64, kTileBytes = kPanelCount * kN * 128, kQBytes = kPanelCount * kM * 128;
  static constexpr int kSharedBytes = kQBytes + 4 * kTileBytes;
  static constexpr int kAccs = D / 8, kScores = kN / 8;
};

struct GroupShared {
  Work work;
  uint64_t q_full, k_full[2], k_empty[2], v_full[2], v_empty[2];
  DEV bool both() const { return work.rows > 64; }   // else warpgroup 1 has no rows
};

enum { kBarTurn = 1 };  // named barriers: the turn of warpgroup 0, 1

// ---- warpgroup 2

template <class S> DEV void copy_stage(const FdDecodeParams& p, uint32_t dst, uint64_t tensor, uint64_t offset, const uint64_t* full, const uint64_t* empty, int i) {
  if (i >= 2 && !MUTANT(prefill_wg_stage_not_awaited)) mbar_wait(smem_u32(empty + i % 2), (i / 2 + 1) & 1);
  copy_rows<S, S::kN>(dst + i % 2 * S::kTileBytes, tensor, offset, p.head_dim);
  cp_arrive_noinc(smem_u32(full + i % 2));
}

template <class S> DEV void produce(const FdDecodeParams& p, const GroupShared& s, uint32_t shared) {
  const Work& w = s.work;
  copy_rows<S, S::kM>(shared, p.q, query_offset<S>(p, w), p.head_dim);
  cp_arrive_noinc(smem_u32(&s.q_full));
  NO_UNROLL for (int tile = w.first, i = 0; tile < w.end; tile += S::kN, i++) {
    const uint64_t offset = token_offset<S>(w, tile);
    copy_stage<S>(p, shared + S::kQBytes, w.k, offset, s.k_full, s.k_empty, i);
    copy_stage<S>(p, shared + S::kQBytes + 2 * S::kTileBytes, w.v, offset, s.v_full, s.v_empty, i);
  }
  cp_wait_all();
}

// ---- warpgroups 0 and 1

DEV void await(const uint64_t* bar, uint32_t parity) {
  mbar_wait(smem_u32(bar), parity);
  fence_async();  // what ordinary copies wrote is for the tensor cores to see
}
DEV void give_back(const uint64_t* bar) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) mbar_arrive(smem_u32(bar));
}

// Starts S = Q K^T of tile i.
template <class S> DEV void start_scores(const GroupShared& s, Scores<S>& x, uint32_t shared, int group, int i) {
  const uint32_t q = shared + group * 64 * 128, k = shared + S::kQBytes + i % 2 * S::kTileBytes;
  auto& d = (float(&)[4 * S::kScores])x;
  await(s.k_full + i % 2, i / 2 & 1);
  wgmma_fence();
  UNROLL for (int j = 0; j < S::D / 16; j++)
    wgmma_rows<typename S::T>(d, rows_desc(q, j / 4 * (S::kM * 128) + j % 4 * 32), rows_desc(k, j / 4 * (S::kN * 128) + j % 4 * 32), j > 0);
  wgmma_commit();
}

// Starts O += P V of tile i.
template <class S> DEV void start_output(const GroupShared& s, State<S>& st, const Weights<S>& weights, uint32_t shared, int i) {
  const uint32_t v = shared + S::kQBytes + (2 + i % 2) * S::kTileBytes;
  auto& d = (float(&)[4 * S::kAccs])st.o;
  await(s.v_full + i % 2, i / 2 & 1);
  wgmma_pin(d);
  wgmma_fence();
  UNROLL for (int j = 0; j < S::kN / 16; j++) wgmma_columns<typename S::T>(d, weights[j][0], columns_desc(v, j * 2048, S::kN * 128));
  wgmma_commit();
}

template <class S> DEV void consume(const FdDecodeParams& p, const GroupShared& s, uint32_t shared, int group, State<S>& st) {
  const Work& w = s.work;
  const int warp_row = threadIdx.x / 32 * 16, n = (w.end - w.first + S::kN - 1) / S::kN;
  const Span common = common_span<S>(p, w, warp_row);
  const bool turns = s.both();
  const float factor = factor_of(p);
  auto& o = (float(&)[4 * S::kAccs])st.o;
  Weights<S> weights;
  Shrink<S> shrink;
  await(&s.q_full, 0);
  {
    Scores<S> x;
    start_scores<S>(s, x, shared, group, 0);
    wgmma_wait<0>();
    wgmma_pin((float(&)[4 * S::kScores])x);
    give_back(s.k_empty);
    shape_scores<S>(p, w, x, w.first, warp_row, common);
    softmax<S, false>(st, x, shrink, factor);
    pack_weights<S>(weights, x);
  }
  if (turns && group == 1 && n > 1) bar_arrive(kBarTurn, 256);
  NO_UNROLL for (int i = 1; i < n; i++) {
    Scores<S> x;
    if (turns) bar_sync(kBarTurn + group, 256);
    start_scores<S>(s, x, shared, group, i);
    start_output<S>(s, st, weights, shared, i - 1);
    if (turns && (group == 0 || i + 1 < n)) bar_arrive(kBarTurn + 1 - group, 256);
    wgmma_wait<1>();
    wgmma_pin((float(&)[4 * S::kScores])x);
    give_back(s.k_empty + i % 2);
    shape_scores<S>(p, w, x, w.first + i * S::kN, warp_row, common);
    softmax<S, false>(st, x, shrink, factor);
    wgmma_wait<0>();
    wgmma_pin(o);
    if (!MUTANT(prefill_wg_not_given_back)) give_back(s.v_empty + (i - 1) % 2);
    if (!MUTANT(prefill_wg_not_rescaled)) rescale<S>(st, shrink);
    pack_weights<S>(weights, x);
  }
  start_output<S>(s, st, weights, shared, n - 1);
  wgmma_wait<0>();
  wgmma_pin(o);
  close<S>(st);
}

DEV void init_barriers(GroupShared& s) {
  const int warps = s.both() ? 8 : 4;
  mbar_init(smem_u32(&s.q_full), 128);
  for (int i = 0; i < 2; i++) {
    mbar_init(smem_u32(s.k_full + i), 128);
    mbar_init(smem_u32(s.v_full + i), 128);
    mbar_init(smem_u32(s.k_empty + i), warps);
    mbar_init(smem_u32(s.v_empty + i), warps);
  }
  mbar_fence_init();
}

template <class S> DEV void group_kernel(const FdDecodeParams& p) {
  SHARED_BYTES(shared);
  SHARED_ARRAY(GroupShared, state, 1);
  GroupShared& s = state[0];
  const Work& w = s.work;
  if (threadIdx.x == 0) {
    find_work<S>(p, s.work);
    init_barriers(s);
  }
  __syncthreads();
  if (w.rows == 0) return;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // known to be the same in a warp, as wgmma must be
  if (group == 2) {
    registers_dec<40>();
    if (w.first < w.end) produce<S>(p, s, smem_u32(shared));
    registers_inc<168>();
  } else {
    registers_inc<232>();
    State<S> st;
    clear<S>(st);
    if (w.first < w.end && group * 64 < w.rows) consume<S>(p, s, smem_u32(shared), group, st);
    if (w.splits == 0) store_output<S>(p, w, st, smem_u32(shared));
    else store_state<S>(p, w, st);
    registers_dec<168>();
  }
  if (w.splits == 0 || p.flags & FD_PARTIALS) return;
  if (last_of(at<uint32_t>(p.counters) + w.counter, w.splits)) merge<S>(p, w);
}

}  // namespace fd::prefill
