#include "emulated_gpu/threads.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "emulated_gpu/settings.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace reelmesh::on_host {
namespace {

constexpr std::size_t stack_bytes = 256 << 10;

struct Copy {
  void* into;
  const void* from;
  int group;
};

// Somewhere to go back to. Unlike contexts, jumps need no system call.
struct Place {
  jmp_buf at;
  const void* stack = nullptr;
  std::size_t bytes = 0;
  void* sanitizer = nullptr;
};

struct Fiber {
  Place place;
  ucontext_t start;
  bool started = false;
  std::unique_ptr<std::byte[]> memory;
  unsigned thread = 0;
  std::vector<Copy> copies;  // asked for and not waited for
  int groups = 0;            // of copies, ended
};

// Those that wait for each other: a block, or a warp.
struct Meeting {
  unsigned members = 0;
  std::vector<Fiber*> waiting;
  void* brought[lanes] = {};
};

// What one thread of the process runs kernels with.
struct Engine {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> idle;
  std::deque<Fiber*> ready;
  Fiber* current = nullptr;
  Place caller;
  const std::function<void()>* body = nullptr;
  const char* name = nullptr;
  unsigned threads = 0, begun = 0, ended = 0;
  Meeting all;
  std::vector<Meeting> warps;
  std::vector<std::byte> shared;
};

std::mutex& one_kernel() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
Engine* engine = nullptr;  // of the kernel that runs

void jump(Place& from, Place& to, Fiber* starting) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from.sanitizer, to.stack, to.bytes);
#endif
  if (_setjmp(from.at) == 0) {
    if (starting == nullptr) _longjmp(to.at, 1);
    setcontext(&starting->start);
  }
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(from.sanitizer, nullptr, nullptr);
#endif
}

void go_to(Place& from, Fiber* fiber) {
  Engine& e = *engine;
  e.current = fiber;
  threadIdx = {fiber->thread, 0, 0};
  const bool first = !std::exchange(fiber->started, true);
  jump(from, fiber->place, first ? fiber : nullptr);
}

// Threads of this block as long as there are any, then those of the next one.
void live() {
#ifdef __SANITIZE_ADDRESS__
  // The first fiber is entered from the caller, whose stack is known only now.
  __sanitizer_finish_switch_fiber(
      nullptr, engine->caller.stack == nullptr ? &engine->caller.stack : nullptr,
      engine->caller.stack == nullptr ? &engine->caller.bytes : nullptr);
#endif
  while (true) {
    Engine& e = *engine;
    Fiber& self = *e.current;
    while (e.begun < e.threads) {
      self.thread = e.begun++;
      threadIdx = {self.thread, 0, 0};
      self.copies.clear();
      self.groups = 0;
      (*e.body)();
      ++e.ended;
    }
    e.idle.push_back(&self);
    if (e.ended == e.threads) {
      jump(self.place, e.caller, nullptr);
    } else if (!e.ready.empty()) {
      Fiber* next = e.ready.front();
      e.ready.pop_front();
      go_to(self.place, next);
    } else {
      emulated::stop(std::string("kernel ") + e.name + ", block " + std::to_string(blockIdx.x) +
                     ": threads wait for others that have ended");
    }
  }
}

Fiber* idle_fiber() {
  Engine& e = *engine;
  if (e.idle.empty()) {
    auto fiber = std::make_unique<Fiber>();
    fiber->memory = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
    fiber->place.stack = fiber->memory.get();
    fiber->place.bytes = stack_bytes;
    getcontext(&fiber->start);
    fiber->start.uc_stack.ss_sp = fiber->memory.get();
    fiber->start.uc_stack.ss_size = stack_bytes;
    fiber->start.uc_link = nullptr;
    makecontext(&fiber->start, &live, 0);
    e.idle.push_back(fiber.get());
    e.fibers.push_back(std::move(fiber));
  }
  Fiber* fiber = e.idle.back();
  e.idle.pop_back();
  return fiber;
}

// Until the others have come. True for the last of them, who does not wait.
bool last_of(Meeting& meeting) {
  Engine& e = *engine;
  if (meeting.waiting.size() + 1 == meeting.members) return true;
  Fiber* self = e.current;
  meeting.waiting.push_back(self);
  if (!e.ready.empty()) {
    Fiber* next = e.ready.front();
    e.ready.pop_front();
    go_to(self->place, next);
  } else if (e.begun < e.threads) {
    go_to(self->place, idle_fiber());
  } else {
    emulated::stop(std::string("kernel ") + e.name + ", block " + std::to_string(blockIdx.x) +
                   ": threads wait for others that do not come");
  }
  return false;
}

void release(Meeting& meeting) {
  engine->ready.insert(engine->ready.end(), meeting.waiting.begin(), meeting.waiting.end());
  meeting.waiting.clear();
}

}  // namespace

void run(const Grid& grid, const std::function<void()>& thread) {
  const std::scoped_lock lock(one_kernel());
  thread_local Engine own;
  engine = &own;
  own.body = &thread;
  own.name = grid.name;
  own.threads = static_cast<unsigned>(grid.threads);
  own.shared.resize(grid.shared_bytes);
  own.all.members = own.threads;
  own.warps.resize((own.threads + lanes - 1) / lanes);
  for (std::size_t w = 0; w < own.warps.size(); ++w) {
    own.warps[w].members =
        std::min<unsigned>(lanes, own.threads - lanes * static_cast<unsigned>(w));
  }
  blockDim = {own.threads};
  gridDim = {static_cast<unsigned>(grid.blocks)};
  for (std::int64_t block = 0; block < grid.blocks; ++block) {
    blockIdx = {static_cast<unsigned>(block), 0, 0};
    std::memset(own.shared.data(), 0xff, own.shared.size());
    own.begun = own.ended = 0;
    go_to(own.caller, idle_fiber());
  }
}

void barrier() {
  if (last_of(engine->all)) release(engine->all);
}

int lane() { return static_cast<int>(engine->current->thread % lanes); }

std::byte* shared_memory() { return engine->shared.data(); }

void meet_warp(void* brought, Together together) {
  Meeting& warp = engine->warps[engine->current->thread / lanes];
  warp.brought[lane()] = brought;
  if (!last_of(warp)) return;
  together(warp.brought, static_cast<int>(warp.members));
  release(warp);
}

void copy_later(void* into, const void* from) {
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
