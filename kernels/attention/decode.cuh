// Split-KV decode attention: the kernel body. Every warp streams tiles of 16 tokens of K and V through its own ring of
// cp.async stages, without a block barrier, and keeps a State of N query rows; decode_combine.cuh merges the warps of the
// CTA and, in the same launch, the CTAs of a (unit, KV head) pair.
//
// What makes it fast, in the order of what it was worth (docs/design/0009): whole rows copied by the warp; one copy of the
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
    return e < count ? (int)ldg32(table + times(e, 4)) : 0;
  }
};

template <class S> DEV Pages find_pages(const FdDecodeParams& p, int b) {
  Pages g = {(const char*)p.table, p.table_stride, p.page_shift - 4, 0};
  uint64_t first = times(b, p.table_stride);
  if (S::OPTIONS && RARE(p.flags & FD_CSR)) {
    first = read_int(p.table_indptr, b);
    g.count = read_int(p.table_indptr, b + 1) - (int)first;
  }
  if (g.table) g.table += first * 4;
  return g;
}

// Copier holds what a lane needs to copy its share of a tile.
template <class S, int PAGING> struct Copier {
  const char* base;  // this lane's chunk of row lane/CHUNKS of token 0 of page 0
  int64_t v_delta;
  uint64_t policy, hop;  // L2 policy; bytes from one copy's rows to the next's
  uint32_t k_dst, v_dst;
  int row, bytes;    // first row of this lane; bytes of its chunk that exist (head_dim may be less than D)
  int exists;        // -1, or 0 for a lane beyond head_dim

  DEV Copier(const FdDecodeParams& p, const Unit& u, int lane, uint32_t ring) {
    const int chunk = lane % S::CHUNKS;
    row = lane / S::CHUNKS;
    const int exist = p.head_dim * (int)sizeof(typename S::KV) - chunk * 16;
    bytes = S::FP8 && S::OPTIONS ? min(exist, 16) : 16;
    exists = exist > 0 ? -1 : 0;
    base = (const char*)p.k + times(u.h, p.head_stride) + times(u.b, 1) * p.seq_stride + chunk * 16;
    if constexpr (PAGING == FAST) base += times(row, p.token_stride);
    if (RARE(p.flags & FD_FLAT)) {
      const uint2 x = ldg64((const char*)p.seq_base + times(u.b, 8));
      base += (uint64_t)x.y << 32 | x.x;
    }
    v_delta = (int64_t)(p.v - p.k);
    policy = policy_evict_first();
    hop = times(S::COPY_ROWS, p.token_stride);
    k_dst = ring + row * S::ROW + k_swizzle<S>(row, chunk);
    v_dst = ring + 16 * S::ROW + row * S::ROW + v_swizzle<S>(row, chunk);
  }

  // Rows advance by COPY_ROWS from copy q to copy q+1, which moves the destination by 512 bytes and changes the swizzle by
  // exclusive-or of a constant.
  DEV static constexpr uint32_t k_flip(int q) { return S::COPY_ROWS == 1 ? (q & 1) << 6 : 0; }
    DEV static constexpr uint32_t v_flip(int q) { return S::CHUNKS >= 8 ? (q * S::COPY_ROWS & 6) << 4 : 0; }

  // Copies tile into the stage at offset slot of the ring. Tokens outside of lo <= j < hi are not read, but become zeros: a
  // weight of zero must not meet a NaN.
  DEV void copy(const FdDecodeParams& p, const Unit& u, Pages& pages, int tile, int page, uint32_t slot) const {
    const int token = tile * 16, rel = token + row - u.lo;
    const unsigned span = (u.hi - u.lo + MUTANT(decode_reads_tail)) & exists;
    const int size = bytes;
    if (RARE(p.flags & FD_EARLY_KV) && token + 16 > u.len - p.fresh_tokens) wait_for_predecessor();
    if constexpr (PAGING == FAST) {
      const char* k = base + (uint64_t)page * p.page_stride + times(token & ((1 << p.page_shift) - 1), p.token_stride);
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
        const int64_t pg = !exists ? 0 : pages.table ? (int)ldg32(pages.table + times(n, 4)) : n;
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
    const int r = u.row0 + min(n * 8 + g, u.rows - 1), i = token_of<S>(p, r);
    const char* row = (const char*)p.q + times(u.q_first + i, p.q_token_stride) + times(u.h * p.group + r - i * p.group, p.head_dim * 2);
    const int first = (S::FP8 ? 16 : 8) * t, exist = p.head_dim - first;
    row += first * 2;
    UNROLL for (int j = 0; j < S::D / 32; j++) {
      const int e = S::FP8 ? 64 * (j >> 1) + 8 * (j & 1) : 32 * j;
      uint4 x = make_uint4(0, 0, 0, 0);
      if (e < exist) x = ldg128(row + e * 2);
      q[n][4 * j] = x.x, q[n][4 * j + 1] = x.y, q[n][4 * j + 2] = x.z, q[n][4 * j + 3] = x.w;
    }
  }
}

// mask: -inf for tokens that a row does not attend. Only for tiles on an edge, so that interior ones pay nothing.
template <class S> DEV void mask(const FdDecodeParams& p, const Unit& u, int lane, int tile, int turn, float (&s)[S::NT][4]) {
  const int token = tile * 16 + (lane >> 2), t = lane & 3;
  UNROLL for (int n = 0; n < S::NT; n++) UNROLL for (int r = 0; r < 2; r++) {
    int lo = u.lo, hi = u.hi;
    if (masked<S>(p)) {
      const int i = token_of<S>(p, later(u.row0, turn) + n * 8 + 2 * t + r);
      lo = max(lo, row_lo(p, u, i));
      hi = min(hi, row_hi(p, u, i));
    }
    if (token < lo || token >= hi) s[n][r] = -INFINITY_F;
    if (token + 8 < lo || token + 8 >= hi) s[n][r + 2] = -INFINITY_F;
  }
}

// to_logits: from dot products to logits in units of log2.
template <class S> DEV void to_logits(const FdDecodeParams& p, float scale, int turn, float (&s)[S::NT][4]) {
  if (S::OPTIONS && RARE(p.softcap > 0.f)) {  // cap * tanh(x) with x = s / cap, as 1 - 2/(e^2x + 1), which saturates; tanh.approx is off by cap/2000
    const float softcap = __uint_as_float(later(__float_as_uint(p.softcap), turn)), to_2x = 2.f * scale * rcp(softcap), cap = softcap * 1.44269504f;
    UNROLL for (int n = 0; n < S::NT; n++) UNROLL for (int i = 0; i < 4; i++) s[n][i] = cap - 2.f * cap * rcp(ex2(s[n][i] * to_2x) + 1.f);
  } else {
    UNROLL for (int n = 0; n < S::NT; n++) UNROLL for (int i = 0; i < 4; i++) s[n][i] *= scale;
  }
}

template <class S, int COMBINE, int PAGING> DEV void decode(const FdDecodeParams& p) {
  SHARED_BYTES(smem);
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const uint32_t ring = smem_u32(smem) + warp * S::STAGES * S::SLOT;
  const bool early = RARE(p.flags & FD_EARLY_KV);
  if (!early) wait_for_predecessor();

  Unit u;
  if (COMBINE == CHUNK && RARE(p.flags & FD_ITEMS)) {
    if (!item_unit<S>(p, u)) return;
  } else {
    if (!grid_unit<S>(p, u, S::N)) return;
    u.split = blockIdx.x;
    u.splits = p.splits;
    // CLUSTER, MAILBOX: tiles dealt out in turns. Either way the first page numbers do not depend on the length.
    u.tile = u.split * (COMBINE == CHUNK ? p.chunk_tiles : S::W);
  }
  u.tile += warp;
  u.step = COMBINE == CHUNK ? S::W : p.splits * S::W;
  Pages pages = find_pages<S>(p, u.b);
  if (PAGING == FAST && pages.table) pages.ahead = pages.entry(u.tile + lane * u.step);
  uint32_t q[S::NT][S::D / 8];
  if (!early) load_q<S>(p, u, lane, q);  // behind the flood of K and V it would come last
  if (!S::OPTIONS && COMBINE != CHUNK) {
    u.lo = u.inner_lo = 0;  // the rest follows in the loop: nothing before it waits for the length
  } else if (!(p.flags & FD_ITEMS)) {
    set_range<S>(p, u);
    if (S::OPTIONS && RARE(u.lo > 15) && COMBINE != CHUNK) u.tile += u.lo >> 4;
    if constexpr (COMBINE == CHUNK) chunk_range<S>(p, u, warp);
    if (S::OPTIONS && RARE(u.lo > 15) && PAGING == FAST && pages.table) pages.ahead = pages.entry(u.tile + lane * u.step);
  }
#if FD_SM90
  if constexpr (COMBINE == CLUSTER) open_inbox<S>(p, u, smem);
#endif
  const Copier<S, PAGING> copier(p, u, lane, ring);
  if (COMBINE == CHUNK && u.split >= u.splits) return;

  float scale = p.scale_log2;
  uint32_t k_scale = __float_as_uint(1.f);  // multiplied in after the first copies, not to wait for it before them
  if (S::FP8 && p.k_scale) k_scale = ldg32((const char*)p.k_scale + times(u.h, 4));
  Softmax sm[S::NT];
  float o[S::NT][S::OT][4];
  UNROLL for (int n = 0; n < S::NT; n++) UNROLL for (int e = 0; e < S::OT; e++) UNROLL for (int i = 0; i < 4; i++) o[n][e][i] = 0.f;

  // Iterations -STAGES ... -1 only load. Unrolling them would double the code and cost 0.5 to 1 us per launch in fetching it.
  int next = u.tile, ordinal = 0, slot = 0;  // next tile to load; its ordinal within pages.ahead; ring slot
  NO_UNROLL for (int it = -S::STAGES;; it++) {
    if constexpr (!S::OPTIONS && COMBINE != CHUNK) set_end(u, later(u.len, slot));
    if (it >= 0) {
      if (RARE(early) && it == 0) {
        wait_for_predecessor();
        load_q<S>(p, u, later(lane, slot), q);
      }
      if (u.tile >= u.end) break;
      if (S::FP8 && it == 0) {
        scale *= __uint_as_float(k_scale);
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
      to_logits<S>(p, scale, slot, s);
      if (u.tile < u.inner_lo || u.tile >= u.inner_hi) mask<S>(p, u, lane, u.tile, slot, s);
      softmax<S>(s, sm, o, b);
      if (!MUTANT(decode_no_wait_v)) cp_wait<2 * S::STAGES - 2>();  // V of this stage
      __syncwarp();
      accumulate<S>(o, stage + v_lane<S>(lane), b);
      u.tile += u.step;
      __syncwarp();  // every lane is done with the slot before it is refilled
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
