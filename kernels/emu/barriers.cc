// What threads wait for each other with: warp operations, block barriers, cluster barriers, dependent launch.
#include <string.h>
#include "machine.h"

namespace emu {

// ---- warp operations

static void finish(Warp* w, Exchange& e, void (*compute)(Exchange&)) {
  compute(e);
  if (!strcmp(e.kind, "__syncwarp")) {   // the one warp operation that orders memory; a shuffle or an mma does not
    Thread* lanes[32];
    size_t n = 0;
    for (uint32_t m = e.arrived; m; m &= m - 1) lanes[n++] = w->lanes[__builtin_ctz(m)];
    race_meet(lanes, n);
  }
  e.unread = e.arrived;
  e.arrived = 0;
}

static Exchange& exchange_for(const char* kind, uint32_t mask, Where where) {
  Warp* w = self->warp;
  Exchange* free = nullptr;
  for (auto& e : w->exchanges) {
    if (e->arrived) {
      if (!(e->mask & mask)) continue;
      if (e->mask == mask && e->where.line == where.line && !strcmp(e->kind, kind)) return *e;
      fail("lanes of warp %d disagree: %s (mask %08x) at line %d meets %s (mask %08x) at line %d", w->number, kind, mask, where.line, e->kind, e->mask, e->where.line);
    }
    if (!e->unread) free = e.get();
  }
  if (!free) { w->exchanges.push_back(std::make_unique<Exchange>()); free = w->exchanges.back().get(); }
  free->mask = mask;
  free->kind = kind;
  free->where = where;
  return *free;
}

Exchange& gather(const char* kind, uint32_t mask, Where where, const void* in, size_t bytes, void (*compute)(Exchange&), bool whole_warp) {
  Warp* w = self->warp;
  const uint32_t bit = 1u << self->lane;
  if (!(mask & bit)) fail("%s at line %d: lane %d is not in its own mask %08x", kind, where.line, self->lane, mask);
  if (whole_warp && w->live != ~0u) fail("%s at line %d: lanes of the warp have ended (live %08x)", kind, where.line, w->live);
  Exchange& e = exchange_for(kind, mask, where);
  if (e.arrived & bit) fail("%s at line %d: lane %d came twice", kind, where.line, self->lane);
  memcpy(e.in[self->lane], in, bytes);
  e.arrived |= bit;
  e.compute = compute;
  if (e.arrived == (mask & w->live)) {
    finish(w, e, compute);
    e.waiting.wake_all();
  } else {
    wait_on(e.waiting, kind, where);
  }
  return e;
}

// ---- block barriers

static void release(Block* block, int id) {
  Barrier& b = block->barriers[id];
  if (Races* r = race_state(block)) {
    for (Thread* t : b.waiting.threads) race_acquire(r->barriers[id], t);
    race_acquire(r->barriers[id]);
    r->barriers[id].clear();
  }
  b.arrived = 0;
  b.lines.clear();
  b.waiting.wake_all();
}

static bool arrive(int id, int threads, Where where) {
  if (id < 0 || id > 15) fail("barrier %d at line %d: there are 0 to 15", id, where.line);
  if (threads % 32) fail("barrier %d at line %d: %d threads are not whole warps", id, where.line, threads);
  Barrier& b = self->block->barriers[id];
  if (b.arrived && b.expected != threads) fail("barrier %d at line %d: for %d threads, but others came for %d", id, where.line, threads, b.expected);
  b.expected = threads;
  b.lines.resize(self->block->warps.size());
  int& line = b.lines[self->warp->number];
  if (line && line != where.line) fail("barrier %d: lanes of warp %d came from lines %d and %d", id, self->warp->number, line, where.line);
  line = where.line;
  const int need = threads ? threads : self->block->live;
  if (Races* r = race_state(self->block)) race_release(r->barriers[id]);
  if (++b.arrived < need) return false;
  release(self->block, id);
  return true;
}

void barrier_sync(int id, int threads, Where where) {
  if (arrive(id, threads, where)) maybe_switch();
  else wait_on(self->block->barriers[id].waiting, "a block barrier", where);
}

void barrier_arrive(int id, int threads, Where where) { arrive(id, threads, where); }

// ---- cluster barriers

static void release(Cluster& c) {
  c.arrived = 0;
  c.phase++;
  c.waiting.wake_all();
}

void cluster_arrive(Where where) {
  Cluster& c = *self->block->cluster;
  if (self->cluster_pending) fail("cluster_arrive at line %d: arrived already and has not waited", where.line);
  self->cluster_pending = true;
  self->cluster_phase = c.phase;
  if (Races* r = race_state(self->block)) race_release(r->cluster);
  if (++c.arrived == c.live) release(c);
}

void cluster_wait(Where where) {
  Cluster& c = *self->block->cluster;
  if (!self->cluster_pending) fail("cluster_wait at line %d without cluster_arrive", where.line);
  self->cluster_pending = false;
  if (c.phase == self->cluster_phase) wait_on(c.waiting, "the cluster barrier", where);
  if (Races* r = race_state(self->block)) race_acquire(r->cluster);
}

// ---- dependent launch

void pdl_launch() {
  Block* b = self->block;
  if (!b->launched_dependents) {
    b->launched_dependents = true;
    b->grid->launched_dependents++;
    machine->start_blocks = true;
  }
  maybe_switch();
}

// Only for the launch just before: if that one ends without waiting for its own predecessor, nobody has waited for that.
void pdl_wait(Where where) {
  Grid* p = self->block->grid->previous;
  if (self->block->grid->how.dependent && p && !p->complete()) wait_on(p->waiting, "the kernel before (pdl_wait)", where);
}

// ---- a thread that has ended is waited for no more

void thread_ended(Thread* t) {
  Block* block = t->block;
  for (int id = 0; id < 16; id++)
    if (Barrier& b = block->barriers[id]; b.arrived && !b.expected && b.arrived == block->live) release(block, id);
  Cluster& c = *block->cluster;
  if (t->cluster_pending && t->cluster_phase == c.phase) c.arrived--;
  if (c.arrived && c.arrived == c.live) release(c);
  for (auto& e : t->warp->exchanges) {
    if (!e->arrived || e->arrived != (e->mask & t->warp->live)) continue;
    finish(t->warp, *e, e->compute);
    e->waiting.wake_all();
  }
}

}  // namespace emu
