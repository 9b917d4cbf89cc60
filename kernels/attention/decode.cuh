// Split-KV decode attention: the kernel body. Every warp streams tiles of 16 tokens of K and V through its own ring of
// cp.async stages, without a block barrier, and keeps a State of N query rows; decode_combine.cuh merges the warps of the
// CTA and, in the same launch, the CTAs of a (unit, KV head) pair.
//
// What makes it fast, in the order of what it was worth (docs/design/0008): whole rows copied by the warp; one copy of the
// load code and one of the compute code in a single rolled loop, as a 3 us kernel waits for its instructions; q asked for
// before the flood of K and V; page numbers that do not wait for the length.
#pragma once
#include "decode_combine.cuh"

namespace fd {

// The kernel before this one in a chain of dependent launches; nothing on devices without the feature.
DEV void wait_for_predecessor() {
#if FD_SM90
  pdl_wait();
#endif
}
DEV void release_successor() {
#if FD_SM90
  pdl_launch();
#endif
}

// Pages finds tiles. One page number per lane is read ahead: good for 32 tiles of this warp.
struct Pages {
  const char* table;  // this sequence's entries; null: pages follow each other
  int count, shift;   // entries; log2 of tiles per page
  int ahead;          // this lane's number

  // Beyond the table there is no tile of this sequence: any number will do.
  DEV int entry(int tile) const {
    const int e = tile >> shift;
    return e < count ? (int)ldg32(table + (int64_t)e * 4) : 0;
  }
};

DEV Pages find_pages(const FdDecodeParams& p, int b) {
  Pages g = {nullptr, p.table_stride, p.page_shift - 4, 0};
  if (p.table) {
    int64_t first = (int64_t)b * p.table_stride;
    if (OPTION(p.table_indptr)) {
      first = read_int(p.table_indptr, b);
      g.count = read_int(p.table_indptr, b + 1) - (int)first;
    }
    g.table = (const char*)p.table + first * 4;
  }
  return g;
}

// Copier holds what a lane needs to copy its share of a tile.
template <class S, int PAGING> struct Copier {
  const char* base;  // this lane's chunk of row lane/CHUNKS of token 0 of page 0
  int64_t v_delta;
  uint64_t policy, hop;  // L2 policy; bytes from one copy's rows to the next's
  uint32_t k_dst, v_dst;
  int row, bytes;    // first row of this lane; bytes of its chunk that exist (head_dim may be less than D)
  int safe;          // tokens below were written before the predecessor began

  DEV Copier(const FdDecodeParams& p, const Unit& u, int lane, uint32_t ring) {
    const int chunk = lane % S::CHUNKS;
    row = lane / S::CHUNKS;
    bytes = min(max(p.head_dim * (int)sizeof(typename S::KV) - chunk * 16, 0), 16);
    base = (const char*)p.k + (int64_t)u.h * p.head_stride + chunk * 16;
    if constexpr (PAGING == FAST) base += (int64_t)row * p.token_stride;
    if (OPTION(p.seq_base)) {
      const uint2 x = ldg64((const char*)p.seq_base + (int64_t)u.b * 8);
      base += (uint64_t)x.y << 32 | x.x;
    } else if (!p.table) {
      base += (int64_t)u.b * p.seq_stride;
    }
    v_delta = (int64_t)(p.v - p.k);
    policy = policy_evict_first();
    hop = (uint64_t)p.token_stride * S::COPY_ROWS;
    k_dst = ring + row * S::ROW + k_swizzle<S>(row, chunk);
    v_dst = ring + 16 * S::ROW + row * S::ROW + v_swizzle<S>(row, chunk);
    safe = OPTION(p.flags & FD_EARLY_KV) ? u.len - p.fresh_tokens : 0x7fffffff;
  }

  // Rows advance by COPY_ROWS from copy q to copy q+1, which moves the destination by 512 bytes and changes the swizzle by
  // exclusive-or of a constant.
  DEV static constexpr uint32_t k_flip(int q) { return S::COPY_ROWS == 1 ? (q & 1) << 6 : 0; }
  DEV static constexpr uint32_t v_flip(int q) { return S::CHUNKS >= 8 ? (q * S::COPY_ROWS & 6) << 4 : 0; }

  // Copies tile into the stage at offset slot of the ring. Tokens outside of lo <= j < hi are not read, but become zeros: a
  // weight of zero must not meet a NaN.
  DEV void copy(const FdDecodeParams& p, const Unit& u, Pages& pages, int tile, int page, uint32_t slot) const {
    const int token = tile * 16, rel = token + row - u.lo;
    const unsigned span = u.hi - u.lo + MUTANT(decode_reads_tail);
    const int size = bytes;
    if (token + 16 > safe) wait_for_predecessor();
    if constexpr (PAGING == FAST) {
      const char* k = base + (uint64_t)page * p.page_stride + (uint64_t)(token & ((1 << p.page_shift) - 1)) * p.token_stride;
      const char* v = k + v_delta;
      UNROLL for (int q = 0; q < S::COPIES; q++) {
        cp_async16((k_dst + slot + q * 512) ^ k_flip(q), k, (unsigned)(rel + q * S::COPY_ROWS) < span ? size : 0, policy);
        k += hop;
      }
      cp_commit();
      UNROLL for (int q = 0; q < S::COPIES; q++) {
        cp_async16((v_dst + slot + q * 512) ^ v_flip(q), v, (unsigned)(rel + q * S::COPY_ROWS) < span ? size : 0, policy);
        v += hop;
      }
    } else {
      int64_t at[S::COPIES];
      UNROLL for (int q = 0; q < S::COPIES; q++) {
        const int j = token + row + q * S::COPY_ROWS, n = j / p.page_size;
        const bool exists = (unsigned)(rel + q * S::COPY_ROWS) < span;
        const int64_t pg = !exists ? 0 : pages.table ? (int)ldg32(pages.table + (int64_t)n * 4) : n;
        at[q] = exists ? pg * (int64_t)p.page_stride + (int64_t)(j - n * p.page_size) * p.token_stride : 0;
        cp_async16((k_dst + slot + q * 512) ^ k_flip(q), base + at[q], exists ? size : 0, policy);
      }
      cp_commit();
      UNROLL for (int q = 0; q < S::COPIES; q++) {
        const bool exists = (unsigned)(rel + q * S::COPY_ROWS) < span;
        cp_async16((v_dst + slot + q * 512) ^ v_flip(q), base + at[q] + v_delta, exists ? size : 0, policy);
      }
    }
    cp_commit();
  }
};

// load_q: this lane's operands, rows beyond the last as copies of it, elements beyond head_dim as zeros.
template <class S> DEV void load_q(const FdDecodeParams& p, const Unit& u, int lane, uint32_t (&q)[S::NT][S::D / 8]) {
  const int g = lane >> 2, t = lane & 3;
  UNROLL for (int n = 0; n < S::NT; n++) {
    const int r = u.row0 + min(n * 8 + g, u.rows - 1), i = token_of(p, r);
    const char* row = (const char*)p.q + (int64_t)(u.q_first + i) * p.q_token_stride + (int64_t)(u.h * p.group + r - i * p.group) * (p.head_dim * 2);
    UNROLL for (int j = 0; j < S::D / 32; j++) {
      const int e = S::FP8 ? 64 * (j >> 1) + 16 * t + 8 * (j & 1) : 32 * j + 8 * t;
      uint4 x = make_uint4(0, 0, 0, 0);
      if (e < p.head_dim) x = ld128(row + e * 2);
      q[n][4 * j] = x.x, q[n][4 * j + 1] = x.y, q[n][4 * j + 2] = x.z, q[n][4 * j + 3] = x.w;
    }
  }
}

// mask: -inf for tokens that a row does not attend. Only for tiles on an edge, so that interior ones pay nothing.
template <class S> DEV void mask(const FdDecodeParams& p, const Unit& u, int lane, int tile, float (&s)[S::NT][4]) {
  const int token = tile * 16 + (lane >> 2), t = lane & 3;
  UNROLL for (int n = 0; n < S::NT; n++) UNROLL for (int r = 0; r < 2; r++) {
    int lo = u.lo, hi = u.hi;
    if (masked(p)) {
      const int i = token_of(p, opaque(u.row0 + n * 8 + 2 * t + r));
      lo = max(lo, row_lo(p, u, i));
      hi = min(hi, row_hi(p, u, i));
    }
    if (token < lo || token >= hi) s[n][r] = -INFINITY_F;
    if (token + 8 < lo || token + 8 >= hi) s[n][r + 2] = -INFINITY_F;
  }
}

// to_logits: from dot products to logits in units of log2.
template <class S> DEV void to_logits(const FdDecodeParams& p, float scale, float (&s)[S::NT][4]) {
  if (OPTION(p.softcap > 0.f)) {  // cap * tanh(x) with x = s / cap, as 1 - 2/(e^2x + 1), which saturates; tanh.approx is off by cap/2000
    const float to_2x = 2.f * scale * rcp(__uint_as_float(opaque(__float_as_uint(p.softcap)))), cap = p.softcap * 1.44269504f;
    UNROLL for (int n = 0; n < S::NT; n++) UNROLL for (int i = 0; i < 4; i++) s[n][i] = cap - 2.f * cap * rcp(ex2(s[n][i] * to_2x) + 1.f);
  } else {
    UNROLL for (int n = 0; n < S::NT; n++) UNROLL for (int i = 0; i < 4; i++) s[n][i] *= scale;
  }
}

template <class S, int COMBINE, int PAGING> DEV void decode(const FdDecodeParams& p) {
  SHARED_BYTES(smem);
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const uint32_t ring = smem_u32(smem) + warp * S::STAGES * S::SLOT;
  const bool early = OPTION(p.flags & FD_EARLY_KV);
  if (!early) wait_for_predecessor();

  Unit u;
  if (COMBINE == CHUNK && OPTION(p.items)) {
    if (!item_unit<S::N>(p, u)) return;
  } else {
    if (!grid_unit<S::N>(p, u)) return;
    set_range(p, u);
    if constexpr (COMBINE == CHUNK) {
      chunk_range(p, u);
    } else {  // tiles dealt out in turns: the first page numbers do not depend on the length
      u.split = blockIdx.x;
      u.splits = p.splits;
      u.tile = (u.lo >> 4) + u.split * S::W;
    }
  }
  u.tile += warp;
  u.step = COMBINE == CHUNK ? S::W : p.splits * S::W;
  Pages pages = find_pages(p, u.b);
  if (PAGING == FAST && pages.table) pages.ahead = pages.entry(u.tile + lane * u.step);
#if FD_SM90
  if constexpr (COMBINE == CLUSTER) open_inbox<S>(p, u, smem);
#endif
  const Copier<S, PAGING> copier(p, u, lane, ring);
  if (COMBINE == CHUNK && u.split >= u.splits) return;

  float scale = p.scale_log2;
  if (S::FP8 && p.k_scale) scale *= __uint_as_float(ldg32((const char*)p.k_scale + u.h * 4));
  Softmax sm[S::NT];
  float o[S::NT][S::OT][4];
  UNROLL for (int n = 0; n < S::NT; n++) UNROLL for (int e = 0; e < S::OT; e++) UNROLL for (int i = 0; i < 4; i++) o[n][e][i] = 0.f;
  uint32_t q[S::NT][S::D / 8];

  // Iterations -STAGES ... -1 only load. Unrolling them would double the code and cost 0.5 to 1 us per launch in fetching it.
  int next = u.tile, ordinal = 0, slot = 0;  // next tile to load; its ordinal within pages.ahead; ring slot
  NO_UNROLL for (int it = -S::STAGES;; it++) {
    if (it == (early ? 0 : -S::STAGES)) {
      if (early) wait_for_predecessor();
      load_q<S>(p, u, lane, q);
    }
    if (it >= 0) {
      if (u.tile >= u.end) break;
      if (S::FP8 && it == 0) {
        UNROLL for (int n = 0; n < S::NT; n++) UNROLL for (int e = 0; e < S::D / 8; e++) {
          const float2 f = unpack_bf16(q[n][e]);
          q[n][e] = pack_f16(f.x, f.y);
        }
      }
      const uint32_t stage = ring + slot * S::SLOT;
      float s[S::NT][4];
      uint32_t b[S::NT][2];
      if (!MUTANT(decode_no_wait_k)) cp_wait<2 * S::STAGES - 1>();  // K of this stage
      __syncwarp();
      scores<S>(s, stage + k_lane<S>(lane), q);
      to_logits<S>(p, scale, s);
      if (u.tile < u.inner_lo || u.tile >= u.inner_hi) mask<S>(p, u, lane, u.tile, s);
      softmax<S>(s, sm, o, b);
      if (!MUTANT(decode_no_wait_v)) cp_wait<2 * S::STAGES - 2>();  // V of this stage
      __syncwarp();
      accumulate<S>(o, stage + v_lane<S>(lane), b);
      u.tile += u.step;
      if (!MUTANT(decode_no_release)) __syncwarp();  // every lane is done with the slot before it is refilled
    }
    if (next < u.end) {
      int page = next >> pages.shift;
      if (PAGING == FAST && pages.table) {
        if (ordinal == 32) {
          ordinal = 0;
          pages.ahead = pages.entry(next + lane * u.step);
        }
        page = __shfl_sync(~0u, pages.ahead, ordinal);
      }
      copier.copy(p, u, pages, next, page, slot * S::SLOT);
      next += u.step;
      ordinal++;
    } else {  // empty groups keep the counts of the waits
      cp_commit();
      cp_commit();
    }
    slot = slot == S::STAGES - 1 ? 0 : slot + 1;
  }
  release_successor();
  combine<S, COMBINE>(p, u, smem, sm, o);
}

}  // namespace fd
