#include "emulated_gpu/threads.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>

#include "emulated_gpu/fiber.hpp"
#include "emulated_gpu/settings.hpp"

namespace reelmesh::on_host {
namespace {

constexpr std::size_t stack_bytes = 256 << 10;
// Guard zone after shared memory, checked for writes.
constexpr std::size_t guard_bytes = 4 << 10;
constexpr std::byte untouched{0xff};

struct Copy {
  void* into;
  const void* from;
  int group;
};

struct Fiber {
  Stack stack;
  unsigned thread = 0;
  std::vector<Copy> copies;  // asynchronous copies not yet made
  int groups = 0;            // number of committed groups of copies
};

// Synchronization of a set of threads: a block or a warp.
struct Meeting {
  unsigned members = 0;
  std::vector<Fiber*> waiting;
  void* brought[lanes] = {};
};

// The state with which one host thread runs kernels; fibers are reused by later kernels.
struct Engine {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> idle;
  std::vector<Fiber*> ready;  // from first_ready on: released from a barrier or collective
  std::size_t first_ready = 0;
  Fiber* current = nullptr;
  StackPoint caller;
  const std::function<void()>* body = nullptr;
  const char* name = nullptr;
  unsigned threads = 0, begun = 0, ended = 0;
  std::vector<unsigned> order;  // of the threads in this block; empty: by number
  std::minstd_rand random{static_cast<unsigned>(emulated::settings().order)};
  Meeting all;
  std::vector<Meeting> warps;
  std::vector<std::byte> shared;
};

std::mutex& one_kernel() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
Engine* engine = nullptr;  // of the running kernel

[[noreturn]] void wrong(const std::string& what) {
  emulated::stop(std::string("kernel ") + engine->name + ", block " + std::to_string(blockIdx.x) +
                 ": " + what);
}
[[noreturn]] void stuck() { wrong("threads wait for others that do not come"); }

Fiber* next_ready() {
  Engine& e = *engine;
  if (e.first_ready == e.ready.size()) return nullptr;
  Fiber* next = e.ready[e.first_ready++];
  if (e.first_ready == e.ready.size()) {
    e.ready.clear();
    e.first_ready = 0;
  }
  return next;
}

inline void go_to(StackPoint& from, Fiber* fiber) {
  engine->current = fiber;
  threadIdx = {fiber->thread, 0, 0};
  go(from, fiber->stack.point);
}

// Body of a fiber: runs threads of this block as long as any have not started, then those of the
// next block.
void live() {
  // The first fiber is entered from run(), whose stack bounds are still unknown; later ones from
  // other fibers.
  arrived(engine->caller.lowest == nullptr ? &engine->caller : nullptr);
  while (true) {
    Engine& e = *engine;
    Fiber& self = *e.current;
    while (e.begun < e.threads) {
      self.thread = e.order.empty() ? e.begun : e.order[e.begun];
      ++e.begun;
      threadIdx = {self.thread, 0, 0};
      self.copies.clear();
      self.groups = 0;
      (*e.body)();
      ++e.ended;
    }
    e.idle.push_back(&self);
    if (e.ended == e.threads) {
      go(self.stack.point, e.caller);
    } else if (Fiber* next = next_ready()) {
      go_to(self.stack.point, next);
    } else {
      stuck();
    }
  }
}

Fiber* idle_fiber() {
  Engine& e = *engine;
  if (e.idle.empty()) {
    // Suspended threads have the same stack depth. If all stacks began at the same offset in a
    // page, their frames would compete for a few sets of the cache.
    const std::size_t bytes = stack_bytes - e.fibers.size() % 61 * 1088;
    e.fibers.push_back(std::make_unique<Fiber>(Fiber{Stack(bytes, &live), 0, {}, 0}));
    e.idle.push_back(e.fibers.back().get());
  }
  Fiber* fiber = e.idle.back();
  e.idle.pop_back();
  return fiber;
}

// Waits for the other members. Returns true at once for the last one to arrive, false for others.
inline bool last_to_arrive(Meeting& meeting) {
  Engine& e = *engine;
  if (meeting.waiting.size() + 1 == meeting.members) return true;
  Fiber* self = e.current;
  meeting.waiting.push_back(self);
  Fiber* next = next_ready();
  if (next == nullptr) {
    if (e.begun == e.threads) stuck();
    next = idle_fiber();
  }
  go_to(self->stack.point, next);
  return false;
}

inline void release(Meeting& meeting) {
  if (!engine->order.empty()) std::ranges::shuffle(meeting.waiting, engine->random);
  engine->ready.insert(engine->ready.end(), meeting.waiting.begin(), meeting.waiting.end());
  meeting.waiting.clear();
}

}  // namespace

namespace {

// The blocks of a grid in turn: by number, or from a random one on in random steps.
class Blocks {
 public:
  Blocks(std::int64_t count, bool ordered, std::minstd_rand& random) : count_(count) {
    if (ordered || count < 2) return;
    std::uniform_int_distribution<std::int64_t> any(0, count - 1);
    next_ = any(random);
    do {
      step_ = any(random);
    } while (std::gcd(step_, count) != 1);
  }
  unsigned next() {
    const std::int64_t block = next_;
    next_ = (next_ + step_) % count_;
    return static_cast<unsigned>(block);
  }

 private:
  std::int64_t count_, next_ = 0, step_ = 1;
};

}  // namespace

void run(const Grid& grid, const std::function<void()>& thread) {
  const std::scoped_lock lock(one_kernel());
  thread_local Engine own;
  engine = &own;
  own.body = &thread;
  own.name = grid.name;
  own.threads = static_cast<unsigned>(grid.threads);
  own.shared.resize(grid.shared_bytes + guard_bytes);
  own.all.members = own.threads;
  own.warps.resize((own.threads + lanes - 1) / lanes);
  for (std::size_t w = 0; w < own.warps.size(); ++w) {
    own.warps[w].members =
        std::min<unsigned>(lanes, own.threads - lanes * static_cast<unsigned>(w));
  }
  blockDim = {own.threads};
  gridDim = {static_cast<unsigned>(grid.blocks)};
  const bool ordered = emulated::settings().order == 0;
  Blocks blocks(grid.blocks, ordered, own.random);
  own.order.resize(ordered ? 0 : own.threads);
  std::iota(own.order.begin(), own.order.end(), 0U);
  for (std::int64_t i = 0; i < grid.blocks; ++i) {
    blockIdx = {blocks.next(), 0, 0};
    std::ranges::shuffle(own.order, own.random);
    std::fill(own.shared.begin(), own.shared.end(), untouched);
    own.begun = own.ended = 0;
    go_to(own.caller, idle_fiber());
    const std::byte* guard = own.shared.data() + grid.shared_bytes;
    // Each byte is like the one before it.
    if (*guard != untouched || std::memcmp(guard, guard + 1, guard_bytes - 1) != 0) {
      wrong("writes beyond its shared memory");
    }
  }
}

void barrier() {
  if (last_to_arrive(engine->all)) release(engine->all);
}

int lane() { return static_cast<int>(engine->current->thread % lanes); }

std::byte* shared_memory() { return engine->shared.data(); }

void full_warp_collective(void* brought, Together together) {
  if (engine->warps[engine->current->thread / lanes].members != lanes) {
    wrong("a warp of fewer threads does what takes all lanes");
  }
  warp_collective(brought, together);
}

void warp_collective(void* brought, Together together) {
  Meeting& warp = engine->warps[engine->current->thread / lanes];
  warp.brought[lane()] = brought;
  if (!last_to_arrive(warp)) return;
  together(warp.brought, static_cast<int>(warp.members));
  release(warp);
}

void expect_aligned(const void* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) wrong("16 bytes at an odd address");
}

void copy_async(void* into, const void* from) {
  expect_aligned(into);
  expect_aligned(from);
  Fiber& self = *engine->current;
  self.copies.push_back({into, from, self.groups});
}

void end_group() { ++engine->current->groups; }

void wait_for_groups(int remaining) {
  Fiber& self = *engine->current;
  std::erase_if(self.copies, [&](const Copy& copy) {
    if (copy.group >= self.groups - remaining) return false;
    std::memcpy(copy.into, copy.from, 16);
    return true;
  });
}

}  // namespace reelmesh::on_host
