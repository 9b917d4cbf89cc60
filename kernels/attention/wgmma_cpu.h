// wgmma.cuh for the emulator, inside namespace fd: operations queue up, and each reads its operands at issue or at the wait, as
// the seed wills; in between its accumulators are NaN. Included by wgmma.cuh only.

// A descriptor is start | panel_bytes << 32, and by rows if that is 0.
inline uint64_t rows_desc(uint32_t a, uint32_t offset) { return a + offset; }
inline uint64_t columns_desc(uint32_t a, uint32_t offset, uint32_t panel_bytes) { return (a + offset) | (uint64_t)panel_bytes << 32; }

struct WgmmaOp { float* d; std::vector<float> result; std::function<void()> compute; };
struct WgmmaQueue { std::vector<WgmmaOp> open; std::deque<std::vector<WgmmaOp>> groups; };
inline WgmmaQueue& wgmma_queue() {
  static std::map<const void*, WgmmaQueue> queues;
  return queues[emu::self];
}
inline void wgmma_fence() {}
template <int N> inline void wgmma_pin(float (&)[N]) {}
inline void wgmma_commit() {
  WgmmaQueue& q = wgmma_queue();
  q.groups.push_back(std::move(q.open));
  q.open.clear();
}
inline void wgmma_land(int newest) {
  emu::maybe_switch();
  WgmmaQueue& q = wgmma_queue();
  for (; (int)q.groups.size() > newest; q.groups.pop_front())
    for (WgmmaOp& op : q.groups.front()) op.compute();
}
template <int N> inline void wgmma_wait() { wgmma_land(N); }

// Element (row, column) of a panel: 128-byte rows, chunks swizzled by the address bits, so that a start inside a row works as on the GPU.
template <class T> inline float panel_element(uint32_t start, int row, int column, Where w) {
  uint32_t a = start + row * 128 + column * 2;
  a ^= a >> 3 & 0x70;
  return to_float(*(const T*)emu::own_shared(a, 2, w));
}

// regs: A in registers instead of at a.
template <class T> inline void wgmma_any(float* d, int n, uint64_t a, const uint32_t* regs, uint64_t b, bool add, bool columns, Where w) {
  const int thread = emu::self->index.x % 128, g = thread % 32 / 4, t = thread % 4, row0 = thread / 32 * 16 + g;
  const uint32_t b_start = (uint32_t)b, panel = (uint32_t)(b >> 32);
  if (columns != (panel != 0)) emu::fail("wgmma: B's descriptor is of the other kind (%s:%d)", w.file, w.line);
  std::array<std::array<float, 16>, 2> held{};
  if (regs) for (int r = 0; r < 4; r++) for (int lane = 0; lane < 4; lane++) {  // element k of a row is in lane k % 8 / 2 of its quad
    const uint32_t x = __shfl_sync(~0u, regs[r], (threadIdx.x & 28) | lane);
    for (int i = 0; i < 2; i++) { const uint16_t bits = (uint16_t)(x >> 16 * i); held[r % 2][r / 2 * 8 + lane * 2 + i] = to_float(*(const T*)&bits); }
  }
  const bool in_registers = regs != nullptr;
  auto products = [=](std::vector<float>& sum) {
    float as[2][16], bs[16];
    for (int half = 0; half < 2; half++) for (int k = 0; k < 16; k++) as[half][k] = in_registers ? held[half][k] : panel_element<T>((uint32_t)a, row0 + 8 * half, k, w);
    for (int j = 0; j < n / 8; j++) for (int i = 0; i < 2; i++) {
      const int c = 8 * j + 2 * t + i;
      for (int k = 0; k < 16; k++) bs[k] = columns ? panel_element<T>(b_start + c / 64 * panel, k, c % 64, w) : panel_element<T>(b_start, c, k, w);
      for (int half = 0; half < 2; half++) {
        float s = 0;
        for (int k = 0; k < 16; k++) s += as[half][k] * bs[k];
        sum[4 * j + 2 * half + i] = s;
      }
    }
  };
  WgmmaQueue& q = wgmma_queue();
  WgmmaOp* before = nullptr;  // an operation in flight on the same accumulator goes first
  for (auto& group : q.groups) for (WgmmaOp& op : group) if (op.d == d) before = &op;
  for (WgmmaOp& op : q.open) if (op.d == d) before = &op;
  std::vector<float> start(n / 2, 0.f), sum(n / 2);
  const bool chained = before != nullptr;
  if (!chained) {
    if (add) start.assign(d, d + n / 2);
    for (int i = 0; i < n / 2; i++) d[i] = __builtin_nanf("");
  }
  const bool now = emu::random_bits() % 2;
  if (now) products(sum);
  q.open.push_back(WgmmaOp{d, {}, [=]() mutable {
    if (!now) products(sum);
    for (int i = 0; i < n / 2; i++) d[i] = (!add ? 0.f : chained ? d[i] : start[i]) + sum[i];
  }});
}
template <class T, int R> inline void wgmma_rows(float (&d)[R], uint64_t a, uint64_t b, bool add, Where w = {}) { wgmma_any<T>(d, 2 * R, a, nullptr, b, add, false, w); }
template <class T> inline void wgmma_columns(float (&d)[128], uint64_t a, uint64_t b, bool add, Where w = {}) { wgmma_any<T>(d, 256, a, nullptr, b, add, true, w); }
template <class T, int R> inline void wgmma_columns(float (&d)[R], const uint32_t (&a)[4], uint64_t b, Where w = {}) { wgmma_any<T>(d, 2 * R, 0, a, b, true, true, w); }
