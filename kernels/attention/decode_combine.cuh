// From the States of warps to the output: merged within the CTA through shared memory, then across the CTAs of a pair in one
// of three ways, each in a fixed order, so that results are the same bit for bit in every run:
//
//   CLUSTER  the CTAs of a pair are a cluster: slices of O are pushed into the shared memory of the CTA that reduces them.
//   MAILBOX  slices travel through global memory. Every 4-byte word is its own arrival flag: a box holds the pattern
//            0xffffffff, a NaN that no arithmetic produces, until the word is written. No fence, no counter, but the CTAs
//            of a pair must all be resident. The reader hands the box back empty.
//   CHUNK    CTAs write their States, and the last one to arrive at a counter merges them. Needs no residency.
//
// O of a CTA is numbered in float4 elements: element e is row e >> ROW_LOG2, columns 4 * (e & (ROW_F4 - 1)) and on. A slice
// is 1 << slice_log2 elements, reduced by the CTA of that number. A segment is the part of a slice within one row.
#pragma once
#include "decode_unit.cuh"

namespace fd {

// Shared memory behind the ring (fd_decode_smem).
template <class S> struct Layout {
  static constexpr int RING = S::W * S::STAGES * S::SLOT;
  static constexpr int WARP_ML = RING;                                         // float2 [W][N]
  static constexpr int INBOX = WARP_ML + S::W * S::N * 8;                      // float4: received slices, or one per thread
  static constexpr int INBOX_F4 = S::N * S::ROW_F4 > S::THREADS ? S::N * S::ROW_F4 : S::THREADS;
  static constexpr int INBOX_ML = INBOX + INBOX_F4 * 16;                       // float2 [256]
  static constexpr int BARRIER = INBOX_ML + 256 * 8;                           // mbarrier, flag
  static constexpr int O_STRIDE = S::D + 4;                                    // floats; padded against bank conflicts
  static_assert(S::N * O_STRIDE * 4 <= S::STAGES * S::SLOT, "a warp's O fits into its ring");
  static_assert(BARRIER + 16 == fd_decode_smem(S::ROW, S::D, S::N, S::W, S::STAGES), "as the host computes it");
};

DEV float weight(float m, float M) { return ex2(m - M); }  // references are finite: kNoMax if empty
DEV float4 axpy(float w, float4 x, float4 a) { return make_float4(a.x + w * x.x, a.y + w * x.y, a.z + w * x.z, a.w + w * x.w); }
DEV float4 f4_of(uint4 x) { return make_float4(__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z), __uint_as_float(x.w)); }

// Sum is a State being merged, of one float4 of O.
struct Sum {
  float m = kNoMax, l = 0.f;
  float4 o = {0.f, 0.f, 0.f, 0.f};
  DEV void rescale(float M) {
    const float f = weight(m, M);
    m = M;
    l *= f;
    o.x *= f, o.y *= f, o.z *= f, o.w *= f;
  }
  DEV void add(float pm, float pl, float4 po) {  // a State whose reference is at most m
    const float f = weight(pm, m);
    l += f * pl;
    o = axpy(f, po, o);
  }
};

// Slices of this unit's O.
template <class S> struct Slices {
  int log2, seg_log2, elements, count;
  DEV Slices(const FdDecodeParams& p, const Unit& u) {
    log2 = p.slice_log2;
    seg_log2 = min(log2, S::ROW_LOG2);
    elements = u.rows << S::ROW_LOG2;
    count = (elements + (1 << log2) - 1) >> log2;
  }
  DEV int size(int slice) const { return min(max(elements - (slice << log2), 0), 1 << log2); }
};

// finish writes one float4 of the output, and the row's LSE.
template <class S> DEV void finish(const FdDecodeParams& p, const Unit& u, int e, Sum a) {
  const int r = u.row0 + (e >> S::ROW_LOG2), col = (e & (S::ROW_F4 - 1)) * 4, i = token_of<S>(p, r);
  const int head = u.h * p.group + r - i * p.group;
  const int token = u.q_first + i;
  if (S::OPTIONS && RARE(p.sinks)) {
    const float sink = __uint_as_float(ldg32((const char*)p.sinks + head * 4)) * 1.44269504f, M = fmaxf(a.m, sink);
    if (sink > kNoMax) {
      a.rescale(M);
      a.l += ex2(sink - M);
    }
  }
  float f = a.l > 0.f ? rcp(a.l) : 0.f;  // nothing attended: exactly 0
  if (S::FP8 && p.v_scale) f *= __uint_as_float(ldg32((const char*)p.v_scale + u.h * 4));
  if (col < p.head_dim)
    st64((char*)p.out + times(token, p.out_token_stride) + times(head * p.head_dim + col, 2),
         make_uint2(pack2<typename S::Q>(a.o.x * f, a.o.y * f), pack2<typename S::Q>(a.o.z * f, a.o.w * f)));
  if (col == 0 && p.lse) {
    const float lse = a.l > 0.f ? (a.m + lg2(a.l)) * 0.69314718f : -INFINITY_F;
    st32((char*)p.lse + (times(token, p.kv_heads * p.group) + head) * 4, __float_as_uint(lse));
  }
}

// ---- within the CTA

// park puts a warp's O into its ring, which is idle by now, and (M, L) beside it.
template <class S> DEV void park(char* smem, Softmax (&sm)[S::NT], const float (&o)[S::NT][S::OT][4], int rows) {
  using L = Layout<S>;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  float2* ml = (float2*)(smem + L::WARP_ML) + warp * S::N;
  float* ring = (float*)(smem + warp * S::STAGES * S::SLOT);
  UNROLL for (int n = 0; n < S::NT; n++) {
    UNROLL for (int k = 4; k < 32; k <<= 1) {
      sm[n].l0 += __shfl_xor_sync(~0u, sm[n].l0, k);
      sm[n].l1 += __shfl_xor_sync(~0u, sm[n].l1, k);
    }
    if (g == 0) {
      ml[8 * n + 2 * t] = make_float2(sm[n].m0, sm[n].l0);
      ml[8 * n + 2 * t + 1] = make_float2(sm[n].m1, sm[n].l1);
    }
    UNROLL for (int r = 0; r < 2; r++) {
      if (8 * n + 2 * t + r >= rows) continue;
      float* row = ring + (8 * n + 2 * t + r) * L::O_STRIDE + g * S::RUN;
      UNROLL for (int c = 0; c < S::D / (8 * S::RUN); c++) UNROLL for (int k = 0; k < S::RUN / 4; k++) {
        const int e = c * S::RUN / 2 + 2 * k;
        *(float4*)(row + c * 8 * S::RUN + 4 * k) = make_float4(o[n][e][r], o[n][e][2 + r], o[n][e + 1][r], o[n][e + 1][2 + r]);
      }
    }
  }
}

// merge_warps: element e of the CTA's State.
template <class S> DEV Sum merge_warps(const char* smem, int e) {
  using L = Layout<S>;
  const int row = e >> S::ROW_LOG2;
  const float2* ml = (const float2*)(smem + L::WARP_ML) + row;
  const float* o = (const float*)smem + row * L::O_STRIDE + (e & (S::ROW_F4 - 1)) * 4;
  Sum a;
  float2 x[S::W];
  UNROLL for (int w = 0; w < S::W; w++) {
    x[w] = ml[w * S::N];
    a.m = fmaxf(a.m, x[w].x);
  }
  UNROLL for (int w = 0; w < S::W; w++) a.add(x[w].x, x[w].y, *(const float4*)(o + w * S::STAGES * S::SLOT / 4));
  return a;
}

// ---- CLUSTER

#if FD_SM90
// Arrives without the fence that the release form has, which would hold up the first copies until q and the page numbers are
// there. mbar_fence_init releases what the others need.
DEV void cluster_arrive_relaxed() {
#ifdef FD_GPU
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
  cluster_arrive();
#endif
}

// open_inbox announces how many bytes the CTA's slice will receive. The others may push after cluster_wait.
template <class S> DEV void open_inbox(const FdDecodeParams& p, const Unit& u, char* smem) {
  if (threadIdx.x == 0) {
    const Slices<S> s(p, u);
    const int size = s.size(u.split), segments = (size + (1 << s.seg_log2) - 1) >> s.seg_log2;
    const uint32_t bar = smem_u32(smem + Layout<S>::BARRIER);
    if (size > 0) {
      mbar_init(bar, 1);
      mbar_fence_init();
      mbar_arrive_expect(bar, p.splits * (size * 16 + segments * 8));
    }
  }
  __syncwarp();
  cluster_arrive_relaxed();
}

template <class S> DEV void push(const Unit& u, char* smem, const Slices<S>& s, int e, const Sum& a) {
  using L = Layout<S>;
  const int slice = e >> s.log2, at = e - (slice << s.log2);
  const uint32_t bar = cluster_addr(smem_u32(smem + L::BARRIER), slice);
  const uint32_t box = cluster_addr(smem_u32(smem + L::INBOX + (((u.split << s.log2) + at) << 4)), slice);
  st_async4(box, a.o, bar);
  if ((at & ((1 << s.seg_log2) - 1)) == 0) {
    const int segment = (u.split << (s.log2 - s.seg_log2)) + (at >> s.seg_log2);
    st_async2(cluster_addr(smem_u32(smem + L::INBOX_ML + segment * 8), slice), a.m, a.l, bar);
  }
}

template <class S> DEV void reduce_inbox(const FdDecodeParams& p, const Unit& u, char* smem, const Slices<S>& s) {
  using L = Layout<S>;
  const int size = s.size(u.split);
  if ((int)threadIdx.x >= size) return;
  mbar_wait(smem_u32(smem + L::BARRIER), 0);
  NO_UNROLL for (int e = threadIdx.x; e < size; e += S::THREADS) {
    const float4* o = (const float4*)(smem + L::INBOX) + e;
    const float2* ml = (const float2*)(smem + L::INBOX_ML) + (e >> s.seg_log2);
    const int segments = s.log2 - s.seg_log2;
    Sum a;
    _Pragma("unroll 8") for (int c = 0; c < p.splits; c++) a.m = fmaxf(a.m, ml[c << segments].x);
    _Pragma("unroll 8") for (int c = 0; c < p.splits; c++) a.add(ml[c << segments].x, ml[c << segments].y, o[c << s.log2]);
    finish<S>(p, u, (u.split << s.log2) + e, a);
  }
}
#endif

// ---- MAILBOX

DEV bool arrived(uint4 x, uint2 y) { return x.x != ~0u && x.y != ~0u && x.z != ~0u && x.w != ~0u && y.x != ~0u && y.y != ~0u; }

// A box: float4 O[slice][split][1 << slice_log2], then float2 (M, L)[segment][split].
template <class S> struct Box {
  char *o, *ml;
  DEV Box(const FdDecodeParams& p, const Unit& u, const Slices<S>& s) {
    o = (char*)p.mailbox + (int64_t)(blockIdx.z * p.kv_heads + u.h) * p.box_stride;
    ml = o + ((int64_t)(s.count * p.splits) << s.log2) * 16;
  }
};

template <class S> DEV void post(const FdDecodeParams& p, const Unit& u, const Slices<S>& s, int e, const Sum& a) {
  const Box<S> box(p, u, s);
  const int slice = e >> s.log2, at = e - (slice << s.log2);
  st_relaxed4(box.o + ((int64_t)(((slice * p.splits + u.split) << s.log2) + at) << 4), a.o);
  if ((at & ((1 << s.seg_log2) - 1)) == 0) st_relaxed2(box.ml + (int64_t)((e >> s.seg_log2) * p.splits + u.split) * 8, a.m, a.l);
}

// A launch that was aborted may have left a box that never fills: better an error than a device that hangs.
static constexpr unsigned kMostPolls = 1u << 25;

// reduce_box: thread = (column of the slice, group of splits). Groups are joined within the warp, then across warps.
template <class S> DEV void reduce_box(const FdDecodeParams& p, const Unit& u, char* smem, const Slices<S>& s) {
  const int size = s.size(u.split);
  if (size == 0) return;
  const Box<S> box(p, u, s);
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, width = 1 << s.log2;
  const int col = tid & (width - 1), group = tid >> s.log2, groups = S::THREADS >> s.log2;
  const int segment = ((u.split << s.log2) + col) >> s.seg_log2;
  char* o = box.o + ((int64_t)((u.split * p.splits << s.log2) + col) << 4);
  char* ml = box.ml + (int64_t)segment * p.splits * 8;
  const int splits = col < size ? p.splits : 0;
  constexpr int BATCH = 3;
  Sum a;
  unsigned polls = 0;
  NO_UNROLL for (int k = group; k < splits; k += BATCH * groups) {
    uint4 x[BATCH];
    uint2 y[BATCH];
    bool all;
    do {
      all = true;
      UNROLL for (int i = 0; i < BATCH; i++) {
        const int split = k + i * groups;
        x[i] = make_uint4(0, 0, 0, 0);
        y[i] = make_uint2(__float_as_uint(kNoMax), 0);
        if (split < splits) {
          x[i] = ld_relaxed4(o + ((int64_t)(split << s.log2) << 4));
          y[i] = ld_relaxed2(ml + split * 8);
        }
      }
      UNROLL for (int i = 0; i < BATCH; i++) all &= arrived(x[i], y[i]);
      if (++polls > kMostPolls) trap();
    } while (!all);
    float M = a.m;
    UNROLL for (int i = 0; i < BATCH; i++) M = fmaxf(M, __uint_as_float(y[i].x));
    a.rescale(M);
    UNROLL for (int i = 0; i < BATCH; i++) a.add(__uint_as_float(y[i].x), __uint_as_float(y[i].y), f4_of(x[i]));
  }
  float M = a.m;
  NO_UNROLL for (int k = width; k < 32; k <<= 1) M = fmaxf(M, __shfl_xor_sync(~0u, M, k));
  a.rescale(M);
  NO_UNROLL for (int k = width; k < 32; k <<= 1) {
    a.l += __shfl_xor_sync(~0u, a.l, k);
    a.o.x += __shfl_xor_sync(~0u, a.o.x, k);
    a.o.y += __shfl_xor_sync(~0u, a.o.y, k);
    a.o.z += __shfl_xor_sync(~0u, a.o.z, k);
    a.o.w += __shfl_xor_sync(~0u, a.o.w, k);
  }
  float4* joined = (float4*)(smem + Layout<S>::INBOX);
  float2* joined_ml = (float2*)(smem + Layout<S>::INBOX_ML);
  const int part = min(width, 32);  // columns of a warp
  if (lane < part) {
    joined[warp * part + lane] = a.o;
    joined_ml[warp * part + lane] = make_float2(a.m, a.l);
  }
  __syncthreads();
  if (tid < size) {  // column tid is entry tid, tid + width, ...
    Sum b;
    for (int k = tid; k < S::W * part; k += width) b.m = fmaxf(b.m, joined_ml[k].x);
    for (int k = tid; k < S::W * part; k += width) b.add(joined_ml[k].x, joined_ml[k].y, joined[k]);
    finish<S>(p, u, (u.split << s.log2) + tid, b);
  }
  NO_UNROLL for (int k = group; k < splits; k += groups) {  // hand the box back empty
    st128(o + ((int64_t)(k << s.log2) << 4), make_uint4(~0u, ~0u, ~0u, ~0u));
    if ((col & ((1 << s.seg_log2) - 1)) == 0) st64(ml + k * 8, make_uint2(~0u, ~0u));
  }
}

// ---- CHUNK

template <class S> DEV void write_state(const FdDecodeParams& p, const Unit& u, int e, const Sum& a) {
  const int row = e >> S::ROW_LOG2, col = (e & (S::ROW_F4 - 1)) * 4;
  const int64_t slot = u.slot + row;
  if (col < p.head_dim) *(float4*)((char*)p.state_o + (slot * p.head_dim + col) * 4) = a.o;
  if (col == 0) *(float2*)((char*)p.state_ml + slot * 8) = make_float2(a.m, a.l);
}

// merge_states: element e over splits States, slots from first on, stride apart.
template <class S> DEV Sum merge_states(const FdDecodeParams& p, int64_t first, int stride, int splits, int e) {
  const int row = e >> S::ROW_LOG2, col = min((e & (S::ROW_F4 - 1)) * 4, p.head_dim - 4);
  const char* o = (const char*)p.state_o + ((first + row) * p.head_dim + col) * 4;
  const char* ml = (const char*)p.state_ml + (first + row) * 8;
  constexpr int BATCH = 8;
  Sum a;
  NO_UNROLL for (int k = 0; k < splits; k += BATCH) {
    uint4 x[BATCH];
    uint2 y[BATCH];
    UNROLL for (int i = 0; i < BATCH; i++) {
      const int64_t slot = (int64_t)min(k + i, splits - 1) * stride;
      y[i] = ld_relaxed2(ml + slot * 8);
      x[i] = ld_relaxed4(o + slot * p.head_dim * 4);
    }
    float M = a.m;
    UNROLL for (int i = 0; i < BATCH; i++) M = fmaxf(M, __uint_as_float(y[i].x));
    a.rescale(M);
    UNROLL for (int i = 0; i < BATCH; i++)
      if (k + i < splits) a.add(__uint_as_float(y[i].x), __uint_as_float(y[i].y), f4_of(x[i]));
  }
  return a;
}

// merge_last: whoever arrives last merges.
template <class S> DEV void merge_last(const FdDecodeParams& p, const Unit& u, char* smem) {
  uint32_t* last = (uint32_t*)(smem + Layout<S>::BARRIER);
  __syncthreads();  // the CTA's State is written before it is announced
  if (threadIdx.x == 0) *last = atom_inc_acq_rel((uint32_t*)p.counters + u.counter, u.splits - 1) == (uint32_t)u.splits - 1;
  __syncthreads();
  if (!*last) return;
  NO_UNROLL for (int e = threadIdx.x; e < u.rows << S::ROW_LOG2; e += S::THREADS)
    finish<S>(p, u, e, merge_states<S>(p, u.first_slot, u.slot_stride, u.splits, e));
}

template <class S, int COMBINE> DEV void combine(const FdDecodeParams& p, const Unit& u, char* smem, Softmax (&sm)[S::NT], const float (&o)[S::NT][S::OT][4]) {
  park<S>(smem, sm, o, u.rows);
  if (!MUTANT(decode_no_barrier_before_merge)) __syncthreads();
#if FD_SM90
  if constexpr (COMBINE == CLUSTER) cluster_wait();
#endif
  const Slices<S> s(p, u);
  const bool alone = COMBINE == CHUNK && u.splits == 1;
  if (COMBINE == CHUNK && !alone && MUTANT(decode_counts_before_writing)) merge_last<S>(p, u, smem);
  NO_UNROLL for (int e = threadIdx.x; e < s.elements; e += S::THREADS) {
    const Sum a = merge_warps<S>(smem, e);
    if (alone) finish<S>(p, u, e, a);
#if FD_SM90
    else if constexpr (COMBINE == CLUSTER) push<S>(u, smem, s, e, a);
#endif
    else if constexpr (COMBINE == MAILBOX) post<S>(p, u, s, e, a);
    else write_state<S>(p, u, e, a);
  }
  if (alone) return;
#if FD_SM90
  if constexpr (COMBINE == CLUSTER) reduce_inbox<S>(p, u, smem, s);
#endif
  if constexpr (COMBINE == MAILBOX) reduce_box<S>(p, u, smem, s);
  if constexpr (COMBINE == CHUNK) if (!(p.flags & FD_PARTIALS)) merge_last<S>(p, u, smem);
}

}  // namespace fd
