// What happens later: cp.async, mbarriers, bulk copies and stores into other blocks. A destination is NaN from the moment of issue until the data
// land, and they land as late as the wait for them allows. A source is read at one end of that time or the other, by the seed.
#include <string.h>
#include <algorithm>
#include "sched.h"

namespace emu {

// ---- cp.async

void CopyGroup::land(size_t first, bool through_mbarrier) {
  for (size_t i = 0; i < std::min(first, ops.size()); i++) {
    CopyOp& o = ops[i];
    if (!o.landed) {
      memset(o.dst, 0, (size_t)o.size);
      memcpy(o.dst, o.taken ? (const char*)o.snapshot : o.src, (size_t)o.bytes);
    }
    if (!o.landed || through_mbarrier) race_landed(o.block, o.dst, (size_t)o.size, !through_mbarrier);
    o.landed = true;
  }
}

static CopyGroup& open_group() {
  if (!self->open_copies) self->open_copies = std::make_shared<CopyGroup>();
  return *self->open_copies;
}

void copy_async(uint32_t dst, const void* src, int size, int bytes, Where where) {
  if (bytes < 0 || bytes > size) fail("cp.async at line %d: %d of %d bytes", where.line, bytes, size);
  CopyOp o = {self->block, own_shared(dst, (size_t)size, where), (const char*)src, size, bytes, false, false, {}};
  if (bytes) check_global(src, (size_t)bytes, 1, where);
  if (bytes && (uintptr_t)src % (unsigned)size) fail("cp.async at line %d: source %p is not aligned to %d bytes", where.line, src, size);
  if (bytes && (o.taken = random_bits() & 1)) memcpy(o.snapshot, src, (size_t)bytes);
  race_copy(o.dst, (size_t)size);
  memset(o.dst, 0xff, (size_t)size);
  open_group().ops.push_back(o);
}

void copy_commit() {
  open_group();
  self->copies.push_back(std::move(self->open_copies));
}

void copy_wait(int newest) {
  while ((int)self->copies.size() > newest) {
    self->copies.front()->land(~0ull, false);
    self->copies.pop_front();
  }
  maybe_switch();
}

// ---- mbarriers. The state is in a map; the 8 bytes in shared memory hold a mark, so that overwriting them is noticed.

constexpr uint64_t kMark = 0x6d62617272696572ull;

static MBarrier& mbarrier(Block* b, uint32_t bar, Where where) {
  const uint32_t offset = bar & kOffsetMask;
  auto m = b->mbarriers.find(offset);
  if (m == b->mbarriers.end()) fail("line %d: no mbarrier at %x: not initialised", where.line, bar);
  uint64_t mark;
  memcpy(&mark, shared_pointer(b, offset, 8, where), 8);
  if (mark != kMark) fail("line %d: the mbarrier at %x was overwritten", where.line, bar);
  return m->second;
}

static void advance(MBarrier& m) {
  if (m.pending || m.bytes) return;
  m.phase++;
  m.pending = m.expected;
  m.waiting.wake_all();
}

static void arrive(MBarrier& m, Where where) {
  if (m.pending == 0) fail("line %d: more arrivals at an mbarrier than the %d of its init", where.line, m.expected);
  m.pending--;
  advance(m);
}

void mbar_init(uint32_t bar, uint32_t arrivals, Where where) {
  memcpy(own_shared(bar, 8, where), &kMark, 8);
  if (!arrivals) fail("mbar_init at line %d for no arrivals", where.line);
  MBarrier& m = self->block->mbarriers[bar & kOffsetMask];
  if (!m.waiting.threads.empty()) fail("mbar_init at line %d while threads wait at that mbarrier", where.line);
  m = MBarrier();
  m.expected = m.pending = (int)arrivals;
}

void mbar_inval(uint32_t bar, Where where) {
  mbarrier(self->block, bar, where);
  self->block->mbarriers.erase(bar & kOffsetMask);
}

void mbar_arrive(uint32_t bar, uint32_t bytes, Where where) {
  Block* b = cluster_block(bar, where);
  MBarrier& m = mbarrier(b, bar, where);
  m.bytes += bytes;
  if (b == self->block) race_release(m.clock);
  arrive(m, where);
  maybe_switch();
}

bool mbar_test(uint32_t bar, uint32_t parity, Where where) {
  poll_point("an mbarrier (mbar_test)", where);
  MBarrier& m = mbarrier(self->block, bar, where);
  const bool ended = (m.phase & 1) != (parity & 1);
  if (ended) race_acquire(m.clock);
  return ended;
}

void mbar_wait(uint32_t bar, uint32_t parity, Where where) {
  own_shared(bar, 8, where);
  MBarrier& m = mbarrier(self->block, bar, where);
  if ((m.phase & 1) == (parity & 1)) wait_on(m.waiting, "an mbarrier", where);
  else maybe_switch();
  race_acquire(m.clock);
}

// complete: what an asynchronous write does when it has landed.
static void complete(Block* b, uint32_t bar, uint32_t bytes, Where where) {
  b->in_flight--;
  MBarrier& m = mbarrier(b, bar, where);
  m.bytes -= bytes;
  advance(m);
}

void copy_arrive(uint32_t bar, Where where) {
  Block* b = self->block;
  mbarrier(b, bar, where);
  std::vector<std::pair<std::shared_ptr<CopyGroup>, size_t>> before;   // later copies of the open group are not waited for
  for (auto& g : self->copies) before.emplace_back(g, g->ops.size());
  if (self->open_copies) before.emplace_back(self->open_copies, self->open_copies->ops.size());
  b->in_flight++;
  later([=] {
    for (auto& [group, first] : before) group->land(first, true);
    b->in_flight--;
    arrive(mbarrier(b, bar, where), where);
  });
}

static void in_flight(Block* b, uint32_t dst, const void* src, uint32_t bytes, uint32_t bar, bool taken, Where where) {
  char* to = shared_pointer(b, dst, bytes, where);
  std::string snapshot;
  if (b == self->block) race_copy(to, bytes);
  race_landed(b, to, bytes, false);      // who waits for the mbarrier may read it; NaN until then is check enough
  if (taken) snapshot.assign((const char*)src, bytes);
  memset(to, 0xff, bytes);
  mbarrier(b, bar, where);
  b->in_flight++;
  later([=] {
    memcpy(to, taken ? snapshot.data() : (const char*)src, bytes);
    complete(b, bar, bytes, where);
  });
}

void store_async(uint32_t dst, const void* value, size_t bytes, uint32_t bar, Where where) {
  if (dst % bytes) fail("st_async at line %d: address %x is not aligned to %zu bytes", where.line, dst, bytes);
  Block* b = cluster_block(dst, where);
  if (cluster_block(bar, where) != b) fail("st_async at line %d: the mbarrier is in another block than the data", where.line);
  in_flight(b, dst, value, (uint32_t)bytes, bar, true, where);
}

void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar, Where where) {
  if (!bytes || bytes % 16 || dst % 16 || (uintptr_t)src % 16) fail("bulk_load at line %d: %u bytes from %p to %x: not all multiples of 16", where.line, bytes, src, dst);
  check_global(src, bytes, 16, where);
  in_flight(cluster_block(dst, where), dst, src, bytes, bar, random_bits() & 1, where);
}

}  // namespace emu
