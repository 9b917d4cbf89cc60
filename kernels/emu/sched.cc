// The scheduler: which thread runs next, which blocks are resident, when asynchronous things happen.
#include "machine.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <algorithm>
#include <utility>
#include "fiber.h"

namespace emu {

Thread* self;
Machine* machine;
static uint64_t seed_state = 1;
static void* scheduler_stack;
static std::string pending_fault;
static std::vector<char*> free_stacks;
static sigjmp_buf on_bad_access;
static std::string bad_access;
std::string describe_address(const void* p);           // memory.cc

void set_seed(uint64_t seed) { seed_state = seed * 0x9E3779B97F4A7C15ull + 1; }
uint64_t random_bits() {  // splitmix64
  uint64_t z = seed_state += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

char* take_stack() {
  if (free_stacks.empty()) {
    constexpr int n = 64;
    char* slab = (char*)mmap(nullptr, n * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) throw std::bad_alloc();
    for (int i = n - 1; i >= 0; i--) free_stacks.push_back(slab + i * kStackBytes);
  }
  char* s = free_stacks.back();
  free_stacks.pop_back();
  *(uint64_t*)s = 0x57ac4bed57ac4bedull;
  return s;
}
void give_stack(char* s) { free_stacks.push_back(s); }

std::string describe(const Thread* t) {
  char s[128];
  const Dim &b = t->block->index, &i = t->index;
  snprintf(s, sizeof s, "block (%u,%u,%u) thread (%u,%u,%u)", b.x, b.y, b.z, i.x, i.y, i.z);
  return s;
}

void fail(const char* format, ...) {
  char s[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(s, sizeof s, format, args);
  va_end(args);
  if (!self) throw Fault(s);
  pending_fault = describe(self) + ": " + s;
  switch_out();
  __builtin_unreachable();
}

void make_ready(Thread* t) {
  t->waiting = nullptr;
  Warp* w = t->warp;
  w->ready |= 1u << t->lane;
  if (w->position < 0) { w->position = (int)machine->ready.size(); machine->ready.push_back(w); }
}

static void not_ready(Thread* t) {
  Warp* w = t->warp;
  w->ready &= ~(1u << t->lane);
  if (w->ready || w->position < 0) return;
  Warp* last = machine->ready.back();
  machine->ready[w->position] = last;
  last->position = w->position;
  machine->ready.pop_back();
  w->position = -1;
}

void WaitList::wake_all() {
  for (Thread* t : threads) make_ready(t);
  threads.clear();
}

void switch_out() { switch_stack(&self->stack_pointer, scheduler_stack); }

void wait_on(WaitList& list, const char* what, Where where) {
  self->waiting = what;
  self->where = where;
  list.threads.push_back(self);
  not_ready(self);
  switch_out();
}

void poll_point(const char* what, Where where) {
  self->waiting = what;
  self->where = where;
  self->polling = true;
  switch_out();
  self->waiting = nullptr;
}

void maybe_switch() { if (random_bits() % 4 == 0) switch_out(); }

void later(std::function<void()> event) { machine->events.push_back(std::move(event)); }

static void entry() {
  self->block->grid->kernel();
  self->done = true;
  switch_out();
}

// ---- blocks

static Block* start_block(Grid* g, unsigned number, std::shared_ptr<Cluster> cluster) {
  auto owned = std::make_unique<Block>();
  Block* b = owned.get();
  machine->blocks.push_back(std::move(owned));
  const Launch& how = g->how;
  b->grid = g;
  b->index = {number % how.grid.x, number / how.grid.x % how.grid.y, number / how.grid.x / how.grid.y};
  b->cluster = std::move(cluster);
  b->rank = (unsigned)b->cluster->blocks.size();
  b->cluster->blocks.push_back(b);
  if (how.shared_bytes) b->dynamic_shared = std::make_unique<Memory>((how.shared_bytes + 15) & ~15u, "dynamic shared memory");
  const unsigned n = how.block.x * how.block.y * how.block.z;
  for (unsigned i = 0; i < n; i++) {
    if (i % 32 == 0) { b->warps.push_back(std::make_unique<Warp>()); b->warps.back()->block = b; b->warps.back()->number = (int)i / 32; }
    auto t = std::make_unique<Thread>();
    t->index = {i % how.block.x, i / how.block.x % how.block.y, i / how.block.x / how.block.y};
    t->lane = (int)i % 32;
    t->block = b;
    t->warp = b->warps.back().get();
    t->warp->lanes[t->lane] = t.get();
    t->warp->live |= 1u << t->lane;
    t->stack = take_stack();
    t->stack_pointer = new_stack_frame(t->stack, entry);
    b->threads.push_back(t.get());
    make_ready(t.get());
    machine->threads.push_back(std::move(t));
  }
  b->live = (int)n;
  b->cluster->live += (int)n;
  g->resident.push_back(b);
  return b;
}

static bool may_start(const Grid& g) {
  const Grid* p = g.previous;
  if (!p || p->complete()) return true;
  return g.how.dependent && p->to_start.empty() && p->launched_dependents == p->blocks;
}

static void start_blocks() {
  for (auto& g : machine->grids) {
    if (!may_start(*g)) return;
    while (!g->to_start.empty() && (g->resident.empty() || g->resident.size() + g->how.cluster <= g->max_resident)) {
      const unsigned first = g->to_start.back();
      g->to_start.pop_back();
      auto cluster = std::make_shared<Cluster>();
      for (unsigned i = 0; i < g->how.cluster; i++) start_block(g.get(), first + i, cluster);
    }
  }
}

static void end_block(Block* b) {
  Grid* g = b->grid;
  if (b->in_flight) fail("block (%u,%u,%u) ended while %d asynchronous writes into its shared memory were in flight", b->index.x, b->index.y, b->index.z, b->in_flight);
  b->cluster->blocks[b->rank] = nullptr;
  std::erase(g->resident, b);
  if (!b->launched_dependents) g->launched_dependents++;
  g->ended++;
  machine->bias = {};
  for (Thread* t : b->threads) give_stack(t->stack);
  std::erase_if(machine->threads, [&](auto& t) { return t->block == b; });
  std::erase_if(machine->blocks, [&](auto& x) { return x.get() == b; });
  if (g->complete()) g->waiting.wake_all();
  machine->start_blocks = true;
}

static void end_thread(Thread* t) {
  if (*(uint64_t*)t->stack != 0x57ac4bed57ac4bedull) fail("%s used more than %zu KB of stack", describe(t).c_str(), kStackBytes >> 10);
  not_ready(t);
  t->copies.clear();
  t->warp->live &= ~(1u << t->lane);
  Block* b = t->block;
  b->live--;
  b->cluster->live--;
  thread_ended(t);
  if (b->live == 0) end_block(b);
}

// ---- the choice

static void new_bias() {
  auto& m = *machine;
  m.bias = {};
  const uint64_t r = random_bits();
  m.bias.left = 16 << (r >> 8) % 12;
  m.bias.late = r >> 16 & 1;
  m.bias.in_order = (r >> 17) % 4 == 0;
  Warp* w = m.ready[(r >> 20) % m.ready.size()];
  switch (r % 6) {
    case 0: break;
    case 1: m.bias.favour = w; break;
    case 2: case 3: m.bias.starve = w; break;
    default: m.bias.starve_lane = w->lanes[__builtin_ctz(w->ready)]; break;
  }
}

static Thread* choose() {
  auto& m = *machine;
  if (m.bias.left-- <= 0) new_bias();
  const uint64_t r = random_bits();
  const size_t n = m.ready.size();
  size_t i = r % n;
  Warp* w = m.ready[i];
  if (m.bias.favour && m.bias.favour->ready) w = m.bias.favour;
  if (w == m.bias.starve && n > 1) w = m.ready[i = (i + 1) % n];
  uint32_t mask = w->ready;
  if (Thread* t = m.bias.starve_lane; t && t->warp == w) {
    if (mask != 1u << t->lane) mask &= ~(1u << t->lane);
    else if (n > 1) mask = (w = m.ready[(i + 1) % n])->ready;
  }
  if (m.bias.in_order) return w->lanes[__builtin_ctz(mask)];
  const int turn = (int)(r >> 32) & 31;
  const uint32_t turned = turn ? mask >> turn | mask << (32 - turn) : mask;
  return w->lanes[(__builtin_ctz(turned) + turn) & 31];
}

static bool happen() {
  auto& e = machine->events;
  if (e.empty()) return false;
  const size_t i = random_bits() % e.size();
  auto event = std::move(e[i]);
  e[i] = std::move(e.back());
  e.pop_back();
  event();
  return true;
}

static void run_queue() {
  auto& m = *machine;
  for (;;) {
    if (std::exchange(m.start_blocks, false)) start_blocks();
    if (!m.events.empty() && random_bits() % (m.bias.late ? 64 : 4) == 0) happen();
    if (m.ready.empty()) {
      if (happen() || m.start_blocks) continue;
      if (m.blocks.empty()) return;
      deadlock("deadlock");
    }
    self = choose();
    self->polling = false;
    switch_stack(&scheduler_stack, self->stack_pointer);
    Thread* t = self;
    self = nullptr;
    if (!pending_fault.empty()) throw Fault(std::exchange(pending_fault, {}));
    if (t->done) end_thread(t);
    m.polls = t->polling ? m.polls + 1 : 0;
    if (m.polls > 4000000) deadlock("polling without end");
  }
}

void deadlock(const char* what) {
  std::map<std::string, std::pair<int, std::string>> places;
  for (auto& t : machine->threads) {
    if (t->done || !t->waiting) continue;
    const char* file = __builtin_strrchr(t->where.file, '/');
    auto& p = places[std::string(t->waiting) + " at " + (file ? file + 1 : t->where.file) + ":" + std::to_string(t->where.line)];
    if (!p.first++) p.second = describe(t.get());
  }
  std::string s = what;
  for (auto& [place, p] : places) s += "\n    " + std::to_string(p.first) + " threads wait for " + place + ", such as " + p.second;
  throw Fault(s);
}

// ---- launching

static void on_signal(int, siginfo_t* info, void*) {
  if (!machine || !self) { signal(SIGSEGV, SIG_DFL); signal(SIGBUS, SIG_DFL); return; }
  bad_access = describe(self) + ": access to " + describe_address(info->si_addr);
  siglongjmp(on_bad_access, 1);
}

static void install_handler() {
  static bool done;
  if (std::exchange(done, true)) return;
  static char alternate[64 << 10];
  stack_t ss = {};
  ss.ss_sp = alternate;
  ss.ss_size = sizeof alternate;
  sigaltstack(&ss, nullptr);
  struct sigaction sa = {};
  sa.sa_sigaction = on_signal;
  sa.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &sa, nullptr);
  sigaction(SIGBUS, &sa, nullptr);
}

void launch(const Launch& how, std::function<void()> kernel) {
  if (!machine) machine = new Machine;
  auto g = std::make_unique<Grid>();
  g->how = how;
  g->kernel = std::move(kernel);
  g->blocks = how.grid.x * how.grid.y * how.grid.z;
  const unsigned threads = how.block.x * how.block.y * how.block.z;
  if (!g->blocks || !threads || threads > 1024) throw Fault("launch of " + std::to_string(g->blocks) + " blocks of " + std::to_string(threads) + " threads");
  if (!how.cluster || how.grid.x % how.cluster || how.cluster > 16) throw Fault("launch: a grid of width " + std::to_string(how.grid.x) + " has no clusters of " + std::to_string(how.cluster));
  if (how.shared_bytes > 227 << 10) throw Fault("launch with " + std::to_string(how.shared_bytes) + " bytes of shared memory: sm_90 has 232448");
  g->max_resident = how.cooperative ? g->blocks : (1 + random_bits() % 4) * how.cluster;
  for (unsigned i = 0; i < g->blocks; i += how.cluster) g->to_start.push_back(i);
  if (const uint64_t order = random_bits() % 3; order == 0) std::reverse(g->to_start.begin(), g->to_start.end());
  else if (order == 1) for (size_t i = g->to_start.size(); i > 1; i--) std::swap(g->to_start[i - 1], g->to_start[random_bits() % i]);
  g->previous = machine->grids.empty() ? nullptr : machine->grids.back().get();
  machine->grids.push_back(std::move(g));
}

static void forget() {
  if (!machine) return;
  for (auto& t : machine->threads) give_stack(t->stack);
  delete machine;
  machine = nullptr;
  self = nullptr;
  pending_fault.clear();
}

void sync() {
  if (!machine) return;
  install_handler();
  if (sigsetjmp(on_bad_access, 1)) {
    forget();
    throw Fault(bad_access);
  }
  try {
    run_queue();
  } catch (...) {
    self = nullptr;
    forget();
    throw;
  }
  forget();
}

void run(const Launch& how, std::function<void()> kernel) {
  launch(how, std::move(kernel));
  sync();
}

// ---- planted bugs

static std::string mutant;
static bool reached;
void choose_mutant(const std::string& name) { mutant = name; reached = false; }
bool mutant_reached() { return reached; }
bool MutantSite::on() {
  if (mutant.empty() || mutant != name) return false;
  return reached = true;
}

}  // namespace emu
