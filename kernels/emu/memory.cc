// The emulated device's memory: registered buffers between guard pages, and the shared memory of blocks.
#include <string.h>
#include <sys/mman.h>
#include <algorithm>
#include <utility>
#include "sched.h"

namespace emu {

namespace {
struct Region { const char *begin, *end, *map_begin, *map_end; std::string name; };
std::vector<Region> regions;
constexpr size_t kPage = 4096;
constexpr unsigned char kCanary = 0xC3;
}  // namespace

Memory::Memory(size_t bytes, std::string name) : bytes_(bytes) {
  const size_t body = (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  map_bytes_ = body + 2 * kPage;
  map_ = (char*)mmap(nullptr, map_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map_ == MAP_FAILED) throw std::bad_alloc();
  char* first = map_ + kPage;
  mprotect(first, body, PROT_READ | PROT_WRITE);
  data_ = random_bits() % 2 ? first : first + body - (bytes + 15) / 16 * 16;   // device allocations are aligned to 16 and more
  memset(first, kCanary, body);
  memset(data_, 0xff, bytes);
  regions.push_back({data_, data_ + bytes, map_, map_ + map_bytes_, std::move(name)});
}

Memory::Memory(Memory&& m) noexcept : map_(std::exchange(m.map_, nullptr)), data_(m.data_), map_bytes_(m.map_bytes_), bytes_(m.bytes_) {}

Memory::~Memory() {
  if (!map_) return;
  auto r = std::find_if(regions.begin(), regions.end(), [&](const Region& x) { return x.map_begin == map_; });
  for (const char* p = map_ + kPage; p < map_ + map_bytes_ - kPage; p++) {
    if (p == data_) p += bytes_;
    if (p < map_ + map_bytes_ - kPage && (unsigned char)*p != kCanary) {
      fprintf(stderr, "emulator: %s was written %td bytes off its start (it has %zu)\n", r->name.c_str(), p - data_, bytes_);
      abort();
    }
  }
  regions.erase(r);
  munmap(map_, map_bytes_);
}

void Memory::read_only(bool on) { mprotect(map_ + kPage, map_bytes_ - 2 * kPage, on ? PROT_READ : PROT_READ | PROT_WRITE); }

std::string describe_address(const void* address) {
  const char* p = (const char*)address;
  char s[256];
  for (const Region& r : regions) {
    if (p < r.map_begin || p >= r.map_end) continue;
    if (p >= r.begin && p < r.end) snprintf(s, sizeof s, "byte %td of %s, which is read only", p - r.begin, r.name.c_str());
    else snprintf(s, sizeof s, "byte %td of %s, which has %td", p - r.begin, r.name.c_str(), r.end - r.begin);
    return s;
  }
  snprintf(s, sizeof s, "%p, which is in no buffer", address);
  return s;
}

void check_global(const void* address, size_t bytes, size_t alignment, Where where) {
  static size_t last;
  const char* p = (const char*)address;
  auto holds = [&](const Region& r) { return p >= r.begin && p + bytes <= r.end; };
  if (last >= regions.size() || !holds(regions[last])) {
    for (last = 0; last < regions.size() && !holds(regions[last]); last++) {}
    if (last == regions.size()) fail("line %d: access of %zu bytes to %s", where.line, bytes, describe_address(address).c_str());
  }
  if ((uintptr_t)address % alignment) fail("line %d: %p is not aligned to %zu bytes", where.line, address, alignment);
}

void* global_memory(const void* p, size_t bytes, Where where) {
  check_global(p, bytes, bytes, where);
  return (void*)p;
}

// ---- shared memory. An address is an offset, with rank + 1 of another block of the cluster above it if cluster_addr made it.

char* dynamic_shared() {
  if (!self->block->dynamic_shared) fail("SHARED_BYTES in a launch without dynamic shared memory");
  return (char*)self->block->dynamic_shared->data();
}

void* static_shared(const void* key, size_t bytes) {
  Block* b = self->block;
  if (!b->static_shared) b->static_shared = std::make_unique<Memory>(kStaticBytes, "static shared memory");
  auto [a, fresh] = b->arrays.try_emplace(key);
  if (fresh) {
    a->second = {b->static_used, (uint32_t)bytes};
    b->static_used += (uint32_t)(bytes + 15) / 16 * 16 + 64;
    if (b->static_used > kStaticBytes) fail("more than %u bytes of static shared memory", kStaticBytes);
  }
  return (char*)b->static_shared->data() + a->second.offset;
}

static bool inside(const std::unique_ptr<Memory>& m, const char* p) { return m && p >= (char*)m->data() && p <= (char*)m->data() + m->bytes(); }

uint32_t shared_address(const void* address, Where where) {
  const Block* b = self->block;
  const char* p = (const char*)address;
  if (inside(b->dynamic_shared, p)) return kDynamicBase + (uint32_t)(p - (char*)b->dynamic_shared->data());
  if (inside(b->static_shared, p)) return kStaticBase + (uint32_t)(p - (char*)b->static_shared->data());
  fail("smem_u32 at line %d: not in this block's shared memory", where.line);
}

char* shared_pointer(Block* b, uint32_t address, size_t bytes, Where where) {
  const uint32_t offset = address & kOffsetMask;
  if (offset < kStaticBase) {
    const size_t n = b->dynamic_shared ? b->dynamic_shared->bytes() : 0;
    if (offset < kDynamicBase || offset - kDynamicBase + bytes > n) fail("line %d: access of %zu bytes at byte %d of dynamic shared memory, which has %zu", where.line, bytes, (int)offset - (int)kDynamicBase, n);
    return (char*)b->dynamic_shared->data() + (offset - kDynamicBase);
  }
  for (auto& [key, a] : b->arrays)
    if (offset - kStaticBase >= a.offset && offset - kStaticBase + bytes <= a.offset + a.bytes) return (char*)b->static_shared->data() + (offset - kStaticBase);
  fail("line %d: access of %zu bytes off the end of a static shared array", where.line, bytes);
}

Block* cluster_block(uint32_t address, Where where) {
  const uint32_t rank = address >> 24;
  if (!rank) return self->block;
  auto& blocks = self->block->cluster->blocks;
  if (rank > blocks.size()) fail("line %d: block %u of a cluster of %zu", where.line, rank - 1, blocks.size());
  if (!blocks[rank - 1]) fail("line %d: shared memory of block %u of the cluster, which has ended", where.line, rank - 1);
  return blocks[rank - 1];
}

char* own_shared(uint32_t address, size_t bytes, Where where) {
  if (cluster_block(address, where) != self->block) fail("line %d: another block's shared memory through a shared::cta access", where.line);
  if (address % bytes) fail("line %d: shared address %x is not aligned to %zu bytes", where.line, address, bytes);
  return shared_pointer(self->block, address, bytes, where);
}

}  // namespace emu
