// From a State to output and LSE.
#pragma once
#include "rows.cuh"

namespace fd {

constexpr float kLn2 = 0.6931471805599453f, kLog2E = 1.4426950408889634f;

// What a row's O is multiplied by, and its LSE. m in log2. The sink is one more logit of the row's softmax without a value.
// An empty row is 0 with LSE -inf; with a sink its LSE is the sink.
struct Norm { float factor, lse; };
DEV Norm normalise(const FdDecodeParams& p, int q_head, float m, float l) {
  if (p.sinks) {
    const float sink = __uint_as_float(ldg32(at<float>(p.sinks) + q_head)) * kLog2E, top = fmaxf(m, sink);
    if (top == -INFINITY_F) return Norm{0.f, -INFINITY_F};
    const float shrink = m == -INFINITY_F ? 0.f : ex2(m - top), sum = l * shrink + ex2(sink - top);
    return Norm{shrink / sum, (top + lg2(sum)) * kLn2};
  }
  return l > 0.f ? Norm{1.f / l, (m + lg2(l)) * kLn2} : Norm{0.f, -INFINITY_F};
}

}  // namespace fd
