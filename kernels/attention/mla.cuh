// mla: latent attention (MLA), 576 elements a token, of which the first 512 are also its value; one KV head, any number of query
// heads. Exact, split over tokens, combined in the same launch in order of split. Reference: attn.Reference, attn.Merge.
//   q [token][q head][576]   out [token][q head][512]   rows are packed: row r is token r / heads, head r % heads
//   states of split x at ((z*gridDim.y + y)*gridDim.x + x): see mla_finish.cuh
// grid (splits, tiles of 64 rows, batch); block 384: warpgroups 0 and 1 compute, 2 copies.
// shared memory: Q and two tiles of 64 tokens, each as 9 panels [64][64 elements]; see wgmma.cuh.
//
// O is 64 x 512 float32: each computing warpgroup holds 256 columns. They take turns with the tiles: the owner of a tile computes
// S = Q K^T and the softmax, and leaves P where the tile's last panel was, which only S needs.
// Two buffers are all that fits, so the order is the one that gives a buffer back soonest: the next tile is copied behind S and the
// softmax. With S_i issued before O += P_{i-1} V_{i-1} the tensor cores had work during a softmax but a tile took 3.1 us, as
// copies stood still meanwhile. See docs/design/0010.
// Bound: tensor cores at 128 heads (278 kFLOP for 1152 bytes of a token), memory at 16.
#pragma once
#include "normalise.cuh"
#include "rows.cuh"
#include "wgmma.cuh"

namespace fd::mla {

constexpr int kM = 64, kN = 64, kDim = 576, kValueDim = 512, kPanels = 9, kBuffers = 2;
constexpr int kPanelBytes = kM * 128, kTileBytes = kPanels * kPanelBytes;
constexpr int kThreads = 384, kWarps = kThreads / 32, kMaxSplits = 160;
constexpr int kSharedBytes = (1 + kBuffers) * kTileBytes;

// A tile arrives and is given back in three parts: values of warpgroup 0 (panels 0-3), of 1 (panels 4-7), and the last panel.
constexpr int kParts = 3;
// Named barriers.
enum { kBarOwn = 1, kBarWeights = 3, kBarBoth = 5 };  // of one warpgroup, +1; weights of even, odd tiles; both warpgroups

struct Work {
  int heads, q_start, q_len, kv_len;
  int row0, rows;              // packed rows of this CTA
  int first, tiles, end;       // tokens: first of tiles, and of no more than end
  int common;                  // tokens before it are attended by all rows
  int splits;                  // CTAs of this tile of rows
  SeqRows kv;
  DEV int position(int r) const { return kv_len - q_len + (row0 + r) / heads; }
};

// What warpgroups tell each other, and the barriers.
struct Shared {
  Work work;
  float m[2][kM], shrink[2][kM];  // by parity of the tile: reference logits after it, and what O is multiplied by before it
  float l[2][kM];                 // sums of either warpgroup's tiles
  uint64_t full[kBuffers][kParts], empty[kBuffers][kParts];
};

DEV bool find(const FdDecodeParams& p, Work& w) {
  const int seq = blockIdx.z, x = blockIdx.x;
  w.kv_len = load_i32(p.kv_len, seq);  // all loads first: a round trip each would be a large part of a short call
  w.q_start = p.q_indptr ? load_i32(p.q_indptr, seq) : seq * p.q_len;
  w.q_len = p.q_indptr ? load_i32(p.q_indptr, seq + 1) : w.q_start + p.q_len;
  w.kv = seq_rows(kv_rows(p), seq);
  w.q_len -= w.q_start;
  w.heads = p.group;
  w.row0 = blockIdx.y * kM;
  w.rows = min(kM, w.q_len * w.heads - w.row0);
  if (w.rows <= 0) return false;
  w.end = p.flags & FD_CAUSAL ? max(0, min(w.kv_len, w.position(w.rows - 1) + 1)) : w.kv_len;
  w.common = p.flags & FD_CAUSAL ? min(w.end, w.position(0) + 1) : w.end;
  const int tiles = (w.end + kN - 1) / kN;
  if (p.chunk_tiles) {  // chunks from token 0: a result does not depend on the batch
    w.splits = max(1, (tiles + p.chunk_tiles - 1) / p.chunk_tiles);
    w.first = x * p.chunk_tiles;
    w.tiles = min(p.chunk_tiles, tiles - w.first);
  } else {              // parts that differ by one tile at most, the longer ones first
    w.splits = max(1, min(tiles, (int)gridDim.x));
    const int each = tiles / w.splits, longer = tiles - each * w.splits;
    w.first = x * each + min(x, longer);
    w.tiles = each + (x < longer);
  }
  w.first *= kN;
  return x < w.splits;
}

DEV uint32_t chunk_at(int row, int chunk) { return chunk / 8 * kPanelBytes + row * 128 + ((chunk % 8 ^ (row & 7)) << 4); }

// ---- warpgroup 2: copies

// One part of 16 rows by a warp: 512 bytes of one row at a time, or four rows of the last panel. offset: of row lane, from
// the tensor; ~0: zeros, and nothing is read.
template <int kPart> DEV void copy_part(uint32_t tile, uint64_t tensor, uint64_t offset) {
  constexpr int kRows = kPart == 2 ? 4 : 1;
  const int lane = threadIdx.x % 32, row0 = threadIdx.x % 128 / 32 * 16;
  const int chunk = kPart == 2 ? 64 + lane % 8 : kPart * 32 + lane;
  UNROLL for (int i = 0; i < 16; i += kRows) {
    const int row = kPart == 2 ? i + lane / 8 : i;
    const uint32_t lo = __shfl_sync(~0u, (uint32_t)offset, row), hi = __shfl_sync(~0u, (uint32_t)(offset >> 32), row);
    const bool read = hi != ~0u;
    cp_async16(tile + chunk_at(row0 + row, chunk), at<char>(tensor + (read ? ((uint64_t)hi << 32 | lo) + chunk * 16 : 0)), read ? 16 : 0);
  }
}

template <int kPart> DEV void copy_part_of(const Shared& s, uint64_t tensor, uint32_t tile, uint64_t offset, int i) {
  const int buffer = i % kBuffers;
  if (i >= kBuffers && !MUTANT(mla_buffer_not_awaited)) mbar_wait(smem_u32(&s.empty[buffer][kPart]), (i / kBuffers + 1) & 1);
  copy_part<kPart>(tile, tensor, offset);
  cp_arrive_noinc(smem_u32(&s.full[buffer][kPart]));
}

DEV void produce(const FdDecodeParams& p, const Shared& s, uint32_t shared) {
  const Work& w = s.work;
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane;
  NO_UNROLL for (int i = 0; i < w.tiles; i++) {
    const int token = w.first + i * kN + row;
    const uint32_t tile = shared + (1 + i % kBuffers) * kTileBytes;
    const uint64_t offset = lane < 16 && token < w.end ? w.kv.offset(token) : ~0ull;
    copy_part_of<0>(s, p.k, tile, offset, i);
    copy_part_of<1>(s, p.k, tile, offset, i);
    copy_part_of<2>(s, p.k, tile, offset, i);
  }
  cp_wait_all();
}

// Q is copied by the warps that need it, while the others start on the first tile: 8 rows each, as one run of chunks.
DEV void copy_query(const FdDecodeParams& p, const Work& w, uint32_t q) {
  constexpr int kChunks = kDim / 8;
  const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 8, packed = w.row0 + row0 + lane, token = packed / w.heads;
  const uint64_t mine = lane < 8 && row0 + lane < w.rows ? (uint64_t)(w.q_start + token) * p.q_token_stride + (uint64_t)(packed - token * w.heads) * (kDim * 2) : ~0ull;
  UNROLL for (int i = 0; i < 8 * kChunks / 32; i++) {
    const int row = (i * 32 + lane) / kChunks, chunk = (i * 32 + lane) % kChunks;
    const uint32_t lo = __shfl_sync(~0u, (uint32_t)mine, row), hi = __shfl_sync(~0u, (uint32_t)(mine >> 32), row);
    const bool read = hi != ~0u;
    cp_async16(q + chunk_at(row0 + row, chunk), at<char>(p.q + (read ? ((uint64_t)hi << 32 | lo) + chunk * 16 : 0)), read ? 16 : 0);
  }
  cp_wait_all();
  fence_async();
  bar_sync(kBarBoth, 256);
}

// ---- warpgroups 0 and 1: arithmetic

using Output = float[128];  // 64 rows x 256 columns of O; this thread: two rows, 64 columns of each

// Waits for a part and lets the tensor cores see what ordinary copies wrote.
DEV void await(const uint64_t* bar, uint32_t parity) {
  mbar_wait(smem_u32(bar), parity);
  fence_async();
}

// Starts S = Q K^T of tile i, part by part as it arrives. A rolled loop: a third less code for every launch to fetch.
template <class T> DEV void start_scores(const Shared& s, float (&x)[32], uint32_t q, uint32_t tile, int i) {
  const uint32_t buffer = i % kBuffers, phase = i / kBuffers & 1;
  await(&s.full[buffer][0], phase);
  wgmma_fence();
  UNROLL for (int j = 0; j < 4; j++) wgmma_rows<T>(x, rows_desc(q, j * 32), rows_desc(tile, j * 32), j > 0);
  NO_UNROLL for (int c = 1; c < kPanels; c++) {
    if (c % 4 == 0) {
      await(&s.full[buffer][c / 4], phase);
      wgmma_fence();
    }
    UNROLL for (int j = 0; j < 4; j++) wgmma_rows<T>(x, rows_desc(q + c * kPanelBytes, j * 32), rows_desc(tile + c * kPanelBytes, j * 32), true);
  }
  wgmma_commit();
}

// Starts O += P V over this warpgroup's 256 columns; P is in the tile's last panel.
template <class T> DEV void start_output(Output& o, uint32_t tile, int group) {
  wgmma_pin(o);
  wgmma_fence();
  UNROLL for (int j = 0; j < 4; j++)
    wgmma_columns<T>(o, rows_desc(tile, 8 * kPanelBytes + j * 32), columns_desc(tile + group * 4 * kPanelBytes, j * 2048, kPanelBytes), true);
  wgmma_commit();
}

DEV void shrink_output(Output& o, const float* shrink, int row) {
  const float a = shrink[row], b = shrink[row + 8];
  if (!__any_sync(~0u, a != 1.f || b != 1.f)) return;
  UNROLL for (int j = 0; j < 32; j++) { o[4 * j] *= a; o[4 * j + 1] *= a; o[4 * j + 2] *= b; o[4 * j + 3] *= b; }
}

// Gives a tile's value half and its P back to the copying warps: one arrival a warp.
DEV void release(const Shared& s, int i, int group) {
  const int buffer = i % kBuffers;
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    mbar_arrive(smem_u32(&s.empty[buffer][group]));
    mbar_arrive(smem_u32(&s.empty[buffer][2]));
  }
}

// A row's part of the online softmax. The reference moves only if the maximum grew by more than 2^8, so O is seldom rescaled.
struct Row { float m, l; };
DEV float advance(Row& r, float before, float top) {
  const float m = top > before + 8.f ? top : before, base = m == -INFINITY_F ? 0.f : m;
  r.l *= r.m == -INFINITY_F ? 0.f : ex2(r.m - base);
  r.m = m;
  return before == -INFINITY_F ? (m == -INFINITY_F ? 1.f : 0.f) : ex2(before - base);
}

// softmax of this warpgroup's tile i; leaves P, the new reference logits and the factors for O. A scheduler has one warp here, so both
// rows of a thread go step by step together: one after the other they would wait for each result.
template <class T> DEV void softmax(const FdDecodeParams& p, Shared& s, float (&x)[32], Row (&rows)[2], uint32_t tile, int i) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4, token = s.work.first + i * kN + lane % 4 * 2;
  if (s.work.first + (i + 1) * kN > s.work.common) UNROLL for (int half = 0; half < 2; half++) {
    const int r = row + 8 * half, hi = (p.flags & FD_CAUSAL) && r < s.work.rows ? min(s.work.end - 1, s.work.position(r)) : s.work.end - 1;
    UNROLL for (int j = 0; j < 8; j++) UNROLL for (int e = 0; e < 2; e++) if (token + j * 8 + e > hi) x[4 * j + 2 * half + e] = -INFINITY_F;
  }
  float top[2], base[2], shrink[2], sum[2][2] = {};
  UNROLL for (int half = 0; half < 2; half++) {
    top[half] = max3(x[2 * half], x[2 * half + 1], x[4 + 2 * half]);
    UNROLL for (int j = 1; j < 8; j++) top[half] = max3(top[half], x[4 * j + 2 * half], x[4 * j + 2 * half + 1]);
  }
  UNROLL for (int d = 1; d < 4; d *= 2) UNROLL for (int half = 0; half < 2; half++) top[half] = fmaxf(top[half], __shfl_xor_sync(~0u, top[half], d));
  UNROLL for (int half = 0; half < 2; half++) {
    shrink[half] = advance(rows[half], i > 0 ? s.m[(i + 1) & 1][row + 8 * half] : -INFINITY_F, top[half] * p.scale_log2);
    base[half] = rows[half].m == -INFINITY_F ? 0.f : rows[half].m;
  }
  UNROLL for (int j = 0; j < 8; j++) UNROLL for (int half = 0; half < 2; half++) UNROLL for (int e = 0; e < 2; e++) {
    float& y = x[4 * j + 2 * half + e];
    y = ex2(fmaf(y, p.scale_log2, -base[half]));
    sum[half][e] += y;
  }
  UNROLL for (int half = 0; half < 2; half++) {
    const int r = row + 8 * half;
    UNROLL for (int j = 0; j < 8; j++) sts32(tile + chunk_at(r, 64 + j) + lane % 4 * 4, fd::half::pack<T>(x[4 * j + 2 * half], x[4 * j + 2 * half + 1]));
    if (lane % 4 == 0) { s.m[i & 1][r] = rows[half].m; s.shrink[i & 1][r] = MUTANT(mla_not_rescaled) ? 1.f : shrink[half]; }
    rows[half].l += sum[half][0] + sum[half][1];
  }
}

// S, softmax and P of this warpgroup's tile i.
template <class T> DEV void weigh_tile(const FdDecodeParams& p, Shared& s, uint32_t shared, uint32_t tile, int group, int i, Row (&rows)[2]) {
  float x[32];
  start_scores<T>(s, x, shared, tile, i);
  wgmma_wait<0>();
  wgmma_pin(x);
  if (!MUTANT(mla_panel_still_read)) bar_sync(kBarOwn + group, 128);  // else a warp may still read the last panel
  softmax<T>(p, s, x, rows, tile, i);
  fence_async();
  bar_sync(kBarOwn + group, 128);
  bar_arrive(kBarWeights + (i & 1), 256);
}

// All tiles. On return o is O of this warpgroup's columns against reference m, l the sum: the same in both warpgroups.
template <class T> DEV void consume(const FdDecodeParams& p, Shared& s, uint32_t shared, int group, Output& o, Row (&result)[2]) {
  const int n = s.work.tiles, row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  Row rows[2] = {{-INFINITY_F, 0.f}, {-INFINITY_F, 0.f}};
  UNROLL for (int j = 0; j < 128; j++) o[j] = 0.f;
  if (n > 0) copy_query(p, s.work, shared);
  NO_UNROLL for (int i = 0; i < n; i++) {
    const uint32_t tile = shared + (1 + i % kBuffers) * kTileBytes;
    if (i % 2 == group) weigh_tile<T>(p, s, shared, tile, group, i, rows);
    else if (!MUTANT(mla_weights_not_awaited)) bar_sync(kBarWeights + (i & 1), 256);
    shrink_output(o, s.shrink[i & 1], row);
    start_output<T>(o, tile, group);
    wgmma_wait<0>();
    wgmma_pin(o);
    release(s, i, group);
  }
  UNROLL for (int half = 0; half < 2; half++) {
    const float m = n > 0 ? s.m[(n - 1) & 1][row + 8 * half] : -INFINITY_F;
    float l = rows[half].m == -INFINITY_F ? 0.f : rows[half].l * ex2(rows[half].m - m);
    l += __shfl_xor_sync(~0u, l, 1);
    l += __shfl_xor_sync(~0u, l, 2);
    if (threadIdx.x % 4 == 0) s.l[group][row + 8 * half] = l;
    result[half].m = m;
  }
  bar_sync(kBarBoth, 256);
  UNROLL for (int half = 0; half < 2; half++) result[half].l = s.l[0][row + 8 * half] + s.l[1][row + 8 * half];
}

}  // namespace fd::mla
