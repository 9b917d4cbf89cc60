// One tile of decode attention by one warp: 16 tokens against N query rows.
//
// Tokens sit on the M side of mma.m16n8k16 and query rows on N, so that a group of 8 query heads reads K and V once and no
// lane works on padding beyond 8 rows:  S = K Q^T [16 tokens][N],  O^T += V^T P^T [D][N].
//
// Both products sum over an index whose order is free: S over the head dim, O over tokens. So a lane reads 16 bytes of a
// row at a time, as they lie in shared memory, and calls them its operand; Q uses the same permutation of the head dim, and
// the permutation of O's rows is undone when O is stored. No ldmatrix, no transposed copy of V.
//
//   lane = 4g + t      K: rows g, g+8; chunk 4j+t of 16 bytes     V: tokens 2t, 2t+1, 2t+8, 2t+9; chunk g + 8c
//   S, this lane: tokens g, g+8 of query rows 2t, 2t+1            O^T, this lane: query rows 2t, 2t+1
#pragma once
#include "../prim/prim.cuh"
#include "params.h"

namespace fd {

// Shape is what a kernel is compiled for. KV: type of K and V; Q: type of q and out; D: head dim; N: query rows; W: warps;
// OPTIONS: masks other than the length, softcap, sinks, ragged q, tables in CSR form. Their code alone, never run, costs
// 0.25 us per launch: more to fetch before the first copy.
template <class KV_, class Q_, int D_, int N_, int W_, bool OPTIONS_> struct Shape {
  using KV = KV_;
  using Q = Q_;
  static constexpr int D = D_, N = N_, W = W_, THREADS = 32 * W;
  static constexpr bool OPTIONS = OPTIONS_;
  static constexpr bool FP8 = sizeof(KV) == 1;
  static constexpr int ROW = D * (int)sizeof(KV), CHUNKS = ROW / 16;     // bytes, 16-byte chunks of a K or V row
  static constexpr int COPY_ROWS = 32 / CHUNKS, COPIES = 16 / COPY_ROWS; // rows of a warp-wide copy; copies of 16 rows
  static constexpr int SLOT = 32 * ROW;                                  // a stage: 16 K rows, then 16 V rows
  static constexpr int STAGES = fd_decode_stages(ROW, W);
  static constexpr int NT = N / 8;                                       // tiles of query rows
  static constexpr int RUN = FP8 && D >= 128 ? 16 : 8;                   // elements of V that a lane reads at a time
  static constexpr int OT = D / 16;                                      // m16 tiles of O^T
  static constexpr int ROW_F4 = D / 4, ROW_LOG2 = fd_ceil_log2(ROW_F4);
  static_assert(CHUNKS >= 4 && CHUNKS <= 32 && STAGES > 0, "rows are copied by whole warps");
};

// A score is in units of log2. A row that has seen no token yet has this reference: finite, so that no difference of two
// references is NaN, and below every score, so that the first one replaces it.
static constexpr float kNoMax = -1e38f;
// Rescale only if a score exceeds the reference by 2^8: exact, as the reference cancels; float32 has room for the sums.
static constexpr float kLazy = 8.f;

template <class KV> DEV void mma_kv(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  mma_f16(c, a0, a1, a2, a3, b0, b1);  // f16, and e4m3 after conversion
}
template <> DEV void mma_kv<bf16>(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  mma_bf16(c, a0, a1, a2, a3, b0, b1);
}
template <class T> DEV uint32_t pack2(float lo, float hi) { return pack_f16(lo, hi); }
template <> DEV uint32_t pack2<bf16>(float lo, float hi) { return pack_bf16(lo, hi); }

// Swizzles, so that the 16-byte reads of 8 lanes hit all banks once: K chunk ^ 4*(row & 1), V chunk ^ (row & 6).
// Rows of 64 bytes (e4m3, D 64): two rows share the banks, K needs none, V takes chunk ^ (row/2 & 3).
template <class S> DEV constexpr uint32_t k_swizzle(int row, int chunk) {
  return (uint32_t)((S::CHUNKS >= 8 ? chunk ^ ((row & 1) << 2) : chunk) << 4);
}
template <class S> DEV constexpr uint32_t v_swizzle(int row, int chunk) {
  return (uint32_t)((S::CHUNKS >= 8 ? chunk ^ (row & 6) : chunk ^ (row >> 1 & 3)) << 4);
}

// Where this lane reads within a stage.
template <class S> DEV uint32_t k_lane(int lane) { return (lane >> 2) * S::ROW + k_swizzle<S>(lane >> 2, lane & 3); }
template <class S> DEV uint32_t v_lane(int lane) {
  const int g = lane >> 2, t = lane & 3;
  const uint32_t row = 16 * S::ROW + 2 * t * S::ROW;
  return S::CHUNKS >= 8 ? row + v_swizzle<S>(2 * t, g) : row + v_swizzle<S>(2 * t, g >> 1) + (g & 1) * 8;
}

// scores: s[n] = K Q_n^T of the tile at k (k_lane included). Two accumulators each halve the chain of dependent mma.
template <class S> DEV void scores(float (&s)[S::NT][4], uint32_t k, const uint32_t (&q)[S::NT][S::D / 8]) {
  float odd[S::NT][4];
  UNROLL for (int n = 0; n < S::NT; n++) UNROLL for (int i = 0; i < 4; i++) s[n][i] = odd[n][i] = 0.f;
  UNROLL for (int j = 0; j < S::CHUNKS / 4; j++) {
    const uint32_t a = (k ^ ((j & 1) << 6)) + (j >> 1) * 128;
    const uint4 x4 = lds128(a), y4 = lds128(a + 8 * S::ROW);
    const uint32_t x[4] = {x4.x, x4.y, x4.z, x4.w}, y[4] = {y4.x, y4.y, y4.z, y4.w};
    if constexpr (!S::FP8) {
      UNROLL for (int n = 0; n < S::NT; n++) {
        mma_kv<typename S::KV>(s[n], x[0], y[0], x[1], y[1], q[n][4 * j], q[n][4 * j + 1]);
        mma_kv<typename S::KV>(odd[n], x[2], y[2], x[3], y[3], q[n][4 * j + 2], q[n][4 * j + 3]);
      }
    } else {
      UNROLL for (int u = 0; u < 4; u++) {
        uint32_t a0, a1, a2, a3;
        e4m3x4_to_f16(x[u], a0, a2);
        e4m3x4_to_f16(y[u], a1, a3);
        UNROLL for (int n = 0; n < S::NT; n++) mma_f16(u & 1 ? odd[n] : s[n], a0, a1, a2, a3, q[n][8 * j + 2 * u], q[n][8 * j + 2 * u + 1]);
      }
    }
  }
  UNROLL for (int n = 0; n < S::NT; n++) UNROLL for (int i = 0; i < 4; i++) s[n][i] += odd[n][i];
}

// Running softmax of this lane's two query rows of one row tile.
struct Softmax {
  float m0 = kNoMax, m1 = kNoMax;  // references: alike in all lanes of a row
  float l0 = 0.f, l1 = 0.f;        // this lane's share of the sums
};

// softmax: turns scores into weights, as the B operand of the second product (b[n]: tokens down, rows across).
template <class S> DEV void softmax(float (&s)[S::NT][4], Softmax (&sm)[S::NT], float (&o)[S::NT][S::OT][4], uint32_t (&b)[S::NT][2]) {
  bool grown = false;
  UNROLL for (int n = 0; n < S::NT; n++)
    grown |= fmaxf(s[n][0], s[n][2]) > sm[n].m0 + kLazy || fmaxf(s[n][1], s[n][3]) > sm[n].m1 + kLazy;
  if (__any_sync(~0u, grown) && !MUTANT(decode_no_rescale)) {
    UNROLL for (int n = 0; n < S::NT; n++) {
      float x0 = fmaxf(s[n][0], s[n][2]), x1 = fmaxf(s[n][1], s[n][3]);
      UNROLL for (int k = 4; k < 32; k <<= 1) {
        x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, k));
        x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, k));
      }
      const float n0 = fmaxf(sm[n].m0, x0), n1 = fmaxf(sm[n].m1, x1), a0 = ex2(sm[n].m0 - n0), a1 = ex2(sm[n].m1 - n1);
      sm[n].m0 = n0;
      sm[n].m1 = n1;
      sm[n].l0 *= a0;
      sm[n].l1 *= a1;
      UNROLL for (int e = 0; e < S::OT; e++) {
        o[n][e][0] *= a0;
        o[n][e][1] *= a1;
        o[n][e][2] *= a0;
        o[n][e][3] *= a1;
      }
    }
  }
  UNROLL for (int n = 0; n < S::NT; n++) {
    const float p0 = ex2(s[n][0] - sm[n].m0), p1 = ex2(s[n][1] - sm[n].m1), p2 = ex2(s[n][2] - sm[n].m0), p3 = ex2(s[n][3] - sm[n].m1);
    sm[n].l0 += p0 + p2;
    sm[n].l1 += p1 + p3;
    b[n][0] = transpose8x8(pack2<typename S::KV>(p0, p1));
    b[n][1] = transpose8x8(pack2<typename S::KV>(p2, p3));
  }
}

// accumulate: O_n^T += V^T P_n^T of the tile at v (v_lane included). Element 2u of a lane's run is row g of tile u of O^T,
// element 2u+1 row g+8: byte permutes pair the tokens.
template <class S> DEV void accumulate(float (&o)[S::NT][S::OT][4], uint32_t v, const uint32_t (&b)[S::NT][2]) {
  constexpr int WORDS = S::RUN * (int)sizeof(typename S::KV) / 4;
  UNROLL for (int c = 0; c < S::D / (8 * S::RUN); c++) {
    uint32_t w[4][4];  // tokens 2t, 2t+1, 2t+8, 2t+9
    UNROLL for (int r = 0; r < 4; r++) {
      const uint32_t a = v + (r & 1) * S::ROW + (r >> 1) * 8 * S::ROW + c * 128;
      if constexpr (WORDS == 4) {
        const uint4 x = lds128(a);
        w[r][0] = x.x, w[r][1] = x.y, w[r][2] = x.z, w[r][3] = x.w;
      } else {
        const uint2 x = lds64(a);
        w[r][0] = x.x, w[r][1] = x.y;
      }
    }
    UNROLL for (int u = 0; u < WORDS; u++) {
      if constexpr (!S::FP8) {
        const uint32_t a0 = __byte_perm(w[0][u], w[1][u], 0x5410), a1 = __byte_perm(w[0][u], w[1][u], 0x7632);
        const uint32_t a2 = __byte_perm(w[2][u], w[3][u], 0x5410), a3 = __byte_perm(w[2][u], w[3][u], 0x7632);
        UNROLL for (int n = 0; n < S::NT; n++) mma_kv<typename S::KV>(o[n][c * 4 + u], a0, a1, a2, a3, b[n][0], b[n][1]);
      } else {  // interleave two tokens' bytes first: the conversion then yields the pairs
        UNROLL for (int half = 0; half < 2; half++) {
          const uint32_t pick = half ? 0x7362 : 0x5140;
          uint32_t a0, a1, a2, a3;
          e4m3x4_to_f16(__byte_perm(w[0][u], w[1][u], pick), a0, a1);
          e4m3x4_to_f16(__byte_perm(w[2][u], w[3][u], pick), a2, a3);
          UNROLL for (int n = 0; n < S::NT; n++) mma_f16(o[n][c * S::RUN / 2 + 2 * u + half], a0, a1, a2, a3, b[n][0], b[n][1]);
        }
      }
    }
  }
}

}  // namespace fd
