// Tests of the emulator itself: each small kernel has one bug of a kind that the emulator must report, and the same kernel without it
// must pass. A kernel is a lambda over the primitives.
#include <math.h>
#include <string.h>
#include "../prim/prim.cuh"
#include "test.h"

using namespace fd;
using emu::Buffer;
using emu::Launch;
using emu::Test;

namespace {

// must_fault runs the kernel on many schedules; one at least has to fault with these words or give wrong output.
void must_fault(Test& t, const char* words, const Launch& how, const std::function<void()>& kernel, const std::function<bool()>& right = nullptr) {
  for (int i = 0; i < 40; i++) {
    try {
      emu::run(how, kernel);
    } catch (const emu::Fault& f) {
      if (!strstr(f.what(), words)) t.fail("want a fault with '%s', got: %s", words, f.what());
      return;
    }
    if (right && !right()) return;
  }
  t.fail("not noticed: %s", words);
}

void copies(emu::Suite& s) {
  // A warp copies 512 bytes through shared memory, each lane reading what its neighbour copied.
  for (int bug = 0; bug < 4; bug++) s.add("copy/bug=" + std::to_string(bug), [=](Test& t) {
    Buffer<uint32_t> in(128, "in"), out(128, "out");
    for (size_t i = 0; i < 128; i++) in[i] = (uint32_t)i;
    in.read_only();
    auto kernel = [&] {
      SHARED_BYTES(smem);
      const int lane = (int)threadIdx.x;
      cp_async16(smem_u32(smem) + 16 * lane, in.data() + 4 * lane, 16);
      if (bug != 1) cp_commit();
      if (bug == 1) cp_wait<0>();            // what was not committed is not waited for
      if (bug == 0 || bug == 3) cp_wait<0>();
      if (bug != 3) __syncwarp();
      st128(out.data() + 4 * lane, lds128(smem_u32(smem) + 16 * (lane ^ 1)));
    };
    auto right = [&] {
      bool ok = true;
      for (size_t i = 0; i < 128; i++) ok &= out[i] == (i ^ 4);
      return ok;
    };
    const Launch how = {.grid = {2}, .block = {32}, .shared_bytes = 512};
    if (bug) return must_fault(t, "", how, kernel, right);   // a race, where that is looked for
    emu::run(how, kernel);
    if (!right()) t.fail("wrong output");
  });
}

void bounds(emu::Suite& s) {
  struct Access { const char* name; const char* words; std::function<void(char* global, uint32_t shared)> body; };
  static const std::vector<Access> all = {
      {"shared past the end", "dynamic shared memory", [](char*, uint32_t a) { lds128(a + 256); }},
      {"shared before the start", "dynamic shared memory", [](char*, uint32_t a) { lds32(a - 4); }},
      {"shared misaligned", "not aligned", [](char*, uint32_t a) { lds128(a + 8); }},
      {"global past the end", "of buffer, which has 64", [](char* p, uint32_t) { ldg128(p + 64); }},
      {"global straddling", "of buffer, which has 64", [](char* p, uint32_t a) { cp_async16(a, p + 64, 16); }},
      {"global misaligned", "aligned to 16", [](char* p, uint32_t) { st128(p + 8, make_uint4(0, 0, 0, 0)); }},
      {"copy source misaligned", "aligned to 16", [](char* p, uint32_t a) { cp_async16(a, p + 8, 16); }},
      {"plain access far off", "of buffer, which has 64", [](char* p, uint32_t) { *(volatile char*)(p + 4104 - ((uintptr_t)p & 4095)) = 1; }},
      {"null", "in no buffer", [](char* p, uint32_t) { *(volatile char*)(p - (uintptr_t)p + 16) = 1; }},
      {"static array", "static shared array", [](char*, uint32_t) { SHARED_ARRAY(float, red, 8); lds32(smem_u32(red) + 32); }},
      {"trap", "trap", [](char*, uint32_t) { trap(); }},
      {"bulk of 8", "multiples of 16", [](char* p, uint32_t a) { mbar_init(a, 1); bulk_load(a + 16, p, 8, a); }},
  };
  for (const Access& x : all) s.add(std::string("bounds/") + x.name, [&x](Test& t) {
    Buffer<char> buffer(64, "buffer");
    must_fault(t, x.words, {.shared_bytes = 256}, [&] { SHARED_BYTES(smem); x.body(buffer.data(), smem_u32(smem)); });
  });
  s.add("bounds/zero bytes read nothing", [](Test& t) {
    Buffer<uint32_t> out(4, "out");
    emu::run({.shared_bytes = 64}, [&] {
      SHARED_BYTES(smem);
      cp_async16(smem_u32(smem), nullptr, 0);
      cp_wait_all();
      st128(out.data(), lds128(smem_u32(smem)));
    });
    for (size_t i = 0; i < 4; i++) t.equal("out", i, out[i], 0);
  });
}

void collectives(emu::Suite& s) {
  s.add("warp/reduction", [](Test& t) {
    Buffer<float> out(96, "out");
    emu::run({.block = {96}}, [&] {
      float x = (float)threadIdx.x;
      for (int k = 16; k; k >>= 1) x += __shfl_xor_sync(~0u, x, k);
      out[threadIdx.x] = x;
    });
    for (size_t i = 0; i < 96; i++) t.near("out", i, out[i], 496 + 1024 * (double)(i / 32), 0);
  });
  s.add("warp/divergent halves", [](Test& t) {
    Buffer<uint32_t> out(32, "out");
    emu::run({.block = {32}}, [&] {
      const uint32_t l = threadIdx.x, mask = l < 16 ? 0xffffu : 0xffff0000u;
      if (l < 16) out[l] = __ballot_sync(mask, l % 2);
      else out[l] = __shfl_sync(mask, l, 17);
    });
    for (size_t i = 0; i < 32; i++) t.equal("out", i, out[i], i < 16 ? 0xaaaa : 17);
  });
  auto fault = [&](const char* name, const char* words, Launch how, std::function<void()> kernel) {
    s.add(std::string("warp/") + name, [=](Test& t) { must_fault(t, words, how, kernel); });
  };
  fault("shuffle in a branch", "deadlock", {.block = {32}}, [] { if (threadIdx.x) __shfl_sync(~0u, 1, 0); else __syncthreads(); });
  fault("lanes disagree", "disagree", {.block = {32}}, [] { if (threadIdx.x < 9) __any_sync(~0u, 1); else __all_sync(~0u, 1); });
  fault("barrier in a branch", "deadlock", {.block = {64}}, [] { if (threadIdx.x < 32) __syncthreads(); else bar_sync(1, 64); });
  fault("barrier on two lines", "came from lines", {.block = {32}}, [] {
    if (threadIdx.x & 1) __syncthreads();
    else __syncthreads();
  });
  fault("mma by half a warp", "lanes of the warp have ended", {.block = {32}}, [] {
    float c[4] = {};
    if (threadIdx.x >= 16) return;
    for (int i = 0; i < 4000; i++) nanosleep(1);   // the others have ended by then
    mma_bf16(c, 0, 0, 0, 0, 0, 0);
  });
  s.add("block/named barriers", [](Test& t) {    // warp 0 feeds warps 1 and 2 through one word
    for (bool bug : {false, true}) {
      Buffer<uint32_t> out(64, "out");
      auto kernel = [&] {
        SHARED_ARRAY(uint32_t, word, 1);
        if (threadIdx.x < 32) {
          for (uint32_t i = 0; i < 8; i++) {
            if (threadIdx.x == 0) word[0] = i;
            bar_sync(1, 96);
            if (!bug) bar_sync(2, 96);
          }
        } else {
          uint32_t sum = 0;
          for (uint32_t i = 0; i < 8; i++) {
            bar_sync(1, 96);
            sum += word[0];
            if (!bug) bar_sync(2, 96);
          }
          out[threadIdx.x - 32] = sum;
        }
      };
      auto right = [&] { bool ok = true; for (uint32_t x : out) ok &= x == 28; return ok; };
      if (bug) must_fault(t, "", {.block = {96}}, kernel, right);
      else { emu::run({.block = {96}}, kernel); if (!right()) t.fail("wrong sum"); }
    }
  });
}

// What no schedule need show: the values are right in most orders.
void race_detection(emu::Suite& s) {
  [[maybe_unused]] static volatile uint32_t sink;                   // a load that nobody uses is none
  struct Kernel { const char* name; const char* words; int threads; std::function<void(char* smem)> body; };
  static const std::vector<Kernel> all = {
      {"write and read", "race at byte 0", 64, [](char* m) { if (threadIdx.x == 0) *(int*)m = 1; else if (threadIdx.x == 32) (void)*(volatile int*)m; }},
      {"read and write", "race at byte 4", 64, [](char* m) { if (threadIdx.x == 0) (void)*(volatile int*)(m + 4); else if (threadIdx.x == 32) *(int*)(m + 4) = 1; }},
      {"two writes", "race at byte 8", 64, [](char* m) { if (threadIdx.x % 32 == 0) *(volatile int*)(m + 8) = 1; }},
      {"a shuffle orders nothing", "race", 32, [](char* m) {
        if (threadIdx.x == 0) sts32(smem_u32(m), 1);
        __shfl_sync(~0u, 1, 0);
        sink = lds32(smem_u32(m));
      }},
      {"a barrier of others", "race", 96, [](char* m) {
        if (threadIdx.x == 0) sts32(smem_u32(m), 1);
        if (threadIdx.x >= 32) { bar_sync(1, 64); sink = lds32(smem_u32(m)); }
      }},
      {"a copy over what is read", "race", 64, [](char* m) {
        if (threadIdx.x >= 32) sink = lds128(smem_u32(m) + 16 * (threadIdx.x - 32)).x;
        else { cp_async16(smem_u32(m) + 16 * threadIdx.x, nullptr, 0); cp_wait_all(); }
      }},
      {"syncwarp", nullptr, 32, [](char* m) { sts32(smem_u32(m) + 4 * threadIdx.x, 1); __syncwarp(); sink = lds128(smem_u32(m) + (4 * threadIdx.x & 48)).x; }},
      {"neighbours in a word", nullptr, 64, [](char* m) { ((volatile char*)m)[threadIdx.x] = 1; }},
      {"arrive and sync", nullptr, 64, [](char* m) {
        if (threadIdx.x < 32) { sts32(smem_u32(m) + 4 * threadIdx.x, 1); bar_arrive(3, 64); }
        else { bar_sync(3, 64); sink = lds32(smem_u32(m) + 4 * (threadIdx.x - 32)); }
      }},
      {"mbarrier", nullptr, 64, [](char* m) {
        const uint32_t bar = smem_u32(m) + 512;
        if (threadIdx.x == 0) mbar_init(bar, 32);
        __syncthreads();
        if (threadIdx.x < 32) { sts32(smem_u32(m) + 4 * threadIdx.x, 1); mbar_arrive(bar); }
        else { mbar_wait(bar, 0); sink = lds32(smem_u32(m) + 4 * (threadIdx.x - 32)); }
      }},
  };
  for (const Kernel& k : all) s.add(std::string("race/") + k.name, [&k](Test& t) {
    const Launch how = {.grid = {1}, .block = {(unsigned)k.threads}, .shared_bytes = 1024};
    auto kernel = [&] { SHARED_BYTES(smem); k.body(smem); };
    if (!k.words) emu::run(how, kernel);
    else if (t.seed == 1) must_fault(t, k.words, how, kernel);   // the seed on which races are looked for
  });
}

void clusters(emu::Suite& s) {
  enum Bug { NONE, NO_WAIT, NO_CLUSTER_BARRIER, TOO_FEW_BYTES, LEAVES_EARLY };
  for (int bug = NONE; bug <= LEAVES_EARLY; bug++) s.add("cluster/all to all/bug=" + std::to_string(bug), [=](Test& t) {
    Buffer<float> out(8, "out");
    auto kernel = [&] {
      SHARED_BYTES(smem);
      const uint32_t box = smem_u32(smem), bar = box + 64, me = cluster_rank();
      if (threadIdx.x == 0) {
        mbar_init(bar, 1);
        mbar_fence_init();
        mbar_arrive_expect(bar, bug == TOO_FEW_BYTES ? 16 : 32);
      }
      if (bug != NO_CLUSTER_BARRIER) { cluster_arrive(); cluster_wait(); }
      if (threadIdx.x < 4) st_async2(cluster_addr(box + 8 * me, threadIdx.x), (float)me, 1.f, cluster_addr(bar, threadIdx.x));
      if (bug == LEAVES_EARLY && me == 3) return;
      if (bug != NO_WAIT) mbar_wait(bar, 0);
      if (threadIdx.x == 0) {
        float x = 0, n = 0;
        for (uint32_t i = 0; i < 4; i++) { const uint2 v = lds64(box + 8 * i); x += __uint_as_float(v.x) * (float)(1 + i), n += __uint_as_float(v.y); }
        out[blockIdx.x] = x * n;
      }
    };
    auto right = [&] { bool ok = true; for (float x : out) ok &= x == 80; return ok; };
    const Launch how = {.grid = {8}, .block = {32}, .shared_bytes = 128, .cluster = 4};
    const char* words[] = {"", "", "", "", "ended"};
    if (bug) return must_fault(t, words[bug], how, kernel, right);
    emu::run(how, kernel);
    if (!right()) t.fail("wrong output");
  });
  s.add("mbarrier/bulk ring", [](Test& t) {       // warp 0 produces, warp 1 consumes, two stages
    for (int bug = 0; bug < 3; bug++) {
      Buffer<uint32_t> in(64 * 9, "in"), out(1, "out");
      uint32_t want = 0;
      for (size_t i = 0; i < in.size(); i++) want += (uint32_t)(i / 4 % 16 == 3) * (in[i] = (uint32_t)(i * i));
      auto kernel = [&] {
        SHARED_BYTES(smem);
        const uint32_t full = smem_u32(smem) + 512, empty = full + 16;
        if (threadIdx.x == 0) for (uint32_t i = 0; i < 2; i++) mbar_init(full + 8 * i, 1), mbar_init(empty + 8 * i, 32);
        __syncthreads();
        uint32_t sum = 0;
        for (uint32_t i = 0; i < 9; i++) {
          const uint32_t stage = i & 1, phase = i >> 1 & 1;
          if (threadIdx.x == 0) {                 // a lane that does not produce must not wait: a phase may pass it by
            if (bug != 1) mbar_wait(empty + 8 * stage, phase ^ 1);
            mbar_arrive_expect(full + 8 * stage, 256);
            bulk_load(smem_u32(smem) + 256 * stage, in.data() + 64 * i, 256, full + 8 * stage);
          } else if (threadIdx.x >= 32) {
            if (bug != 2) mbar_wait(full + 8 * stage, phase);
            sum += lds32(smem_u32(smem) + 256 * stage + 48 + 4 * (threadIdx.x & 3));
            mbar_arrive(empty + 8 * stage);
          }
        }
        for (int k = 1; k < 4; k <<= 1) sum += __shfl_xor_sync(~0u, sum, k);
        if (threadIdx.x == 32) out[0] = sum;
      };
      if (bug) must_fault(t, bug == 1 ? "arrivals" : "", {.block = {64}, .shared_bytes = 1024}, kernel, [&] { return out[0] == want; });
      else { emu::run({.block = {64}, .shared_bytes = 1024}, kernel); t.equal("sum", 0, out[0], want); }
    }
  });
}

void grids(emu::Suite& s) {
  s.add("grid/last arriver", [](Test& t) {
    Buffer<uint32_t> counter(1, "counter"), out(5, "out");
    counter[0] = 0;
    for (int round = 0; round < 3; round++) emu::run({.grid = {5}, .block = {32}}, [&] {
      if (threadIdx.x) return;
      out[blockIdx.x] = atom_inc_acq_rel(counter.data(), 4);
    });
    uint32_t seen = 0;
    for (uint32_t x : out) seen |= 1u << x;
    t.equal("seen", 0, seen, 31);
    t.equal("counter", 0, counter[0], 0);
  });
  auto mailbox = [](Buffer<uint32_t>& box) {
    st_relaxed1(&box[blockIdx.x], 1);
    while (ld_relaxed1(&box[(blockIdx.x + 1) % 6]) != 1) {}
  };
  s.add("grid/mailbox, all resident", [=](Test&) {
    Buffer<uint32_t> box(6, "box");
    emu::run({.grid = {6}, .block = {1}, .cooperative = true}, [&] { mailbox(box); });
  });
  s.add("grid/mailbox without residency", [=](Test& t) {
    must_fault(t, "polling without end", {.grid = {6}, .block = {1}}, [=] {
      static Buffer<uint32_t> box(6, "box");
      if (blockIdx.x == 0) box.fill(0);
      mailbox(box);
    });
  });
  for (bool bug : {false, true}) s.add(bug ? "dependent/early read" : "dependent/chain", [=](Test& t) {
    bool wrong = false;
    for (int i = 0; i < 20 && !wrong; i++) {
      Buffer<uint32_t> a(4, "a"), b(4, "b");
      const Launch how = {.grid = {4}, .block = {1}, .dependent = true};
      emu::launch(how, [&] { pdl_launch(); nanosleep(1); a[blockIdx.x] = 7; });
      emu::launch(how, [&] { pdl_launch(); if (!bug) pdl_wait(); b[blockIdx.x] = a[3 - blockIdx.x]; });
      emu::sync();
      for (uint32_t x : b) wrong |= x != 7;
    }
    if (wrong != bug) t.fail(bug ? "the early read was not noticed" : "read before the kernel ahead had ended");
  });
}

}  // namespace

void emu::cases(Suite& suite) {
  copies(suite);
  bounds(suite);
  collectives(suite);
  race_detection(suite);
  clusters(suite);
  grids(suite);
}
