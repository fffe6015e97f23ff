#pragma once
// Kernels run on the host: what tensor/cuda/kernel.cuh gives under CUDA, with the threads of a
// block as fibers of one thread. They meet at barriers and in the collective operations of a warp.
// Blocks come one after the other. Reports, by ending the test program, threads that wait for
// others that have ended or are elsewhere; shared memory starts as NaN.
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tensor/tensor.hpp"

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace reelmesh::on_host {

/// Those that wait for each other: a block, or a warp.
struct Meeting {
  int members = 0;
  int arrived = 0;
  std::uint64_t round = 0;
  const void* brought[32] = {};  ///< by the lanes of a warp
};

struct Copy {
  void* into;
  const void* from;
  int group;
};

struct Fiber {
  ucontext_t start;
  jmp_buf place;  ///< where it yielded; unlike ucontext this needs no system call
  bool started = false;
  std::unique_ptr<std::byte[]> stack;
  bool ended = false;
  unsigned index = 0;
  std::vector<Copy> copies;  ///< asked for and not waited for
  int groups = 0;            ///< of copies, committed
};

struct Block {
  jmp_buf scheduler;
  std::vector<std::unique_ptr<Fiber>> fibers;
  Fiber* current = nullptr;
  std::function<void()> body;
  Meeting all;
  std::vector<Meeting> warps;
  std::vector<std::byte> shared;
  std::uint64_t meetings = 0;  ///< for the watch over progress
};
inline Block block;

inline void yield() {
  if (_setjmp(block.current->place) == 0) _longjmp(block.scheduler, 1);
}

inline void resume(Fiber& fiber) {
  block.current = &fiber;
  threadIdx = {fiber.index, 0, 0};
  if (_setjmp(block.scheduler) != 0) return;
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  setcontext(&fiber.start);
}

inline void meet(Meeting& meeting) {
  const std::uint64_t round = meeting.round;
  if (++meeting.arrived == meeting.members) {
    meeting.arrived = 0;
    ++meeting.round;
    ++block.meetings;
    return;
  }
  while (meeting.round == round) yield();
}

inline Meeting& warp() { return block.warps[block.current->index / 32]; }
inline int lane() { return static_cast<int>(block.current->index % 32); }

/// Every lane brings something and makes its result of what all brought.
template <class T, class F>
auto exchange(const T& mine, F&& result) {
  Meeting& w = warp();
  w.brought[lane()] = &mine;
  meet(w);
  const auto value =
      result([&](int other) -> const T& { return *static_cast<const T*>(w.brought[other]); });
  meet(w);
  return value;
}

inline void enter() {
  block.body();
  block.current->ended = true;
  while (true) yield();
}

inline void run_block(unsigned index, int threads) {
  const auto count = static_cast<std::size_t>(threads);
  constexpr std::size_t stack_bytes = 128 << 10;
  while (block.fibers.size() < count) {
    block.fibers.push_back(std::make_unique<Fiber>());
    block.fibers.back()->stack = std::make_unique<std::byte[]>(stack_bytes);
  }
  blockIdx = {index};
  std::memset(block.shared.data(), 0xff, block.shared.size());
  block.all = {threads};
  block.warps.assign((count + 31) / 32, {});
  for (std::size_t w = 0; w < block.warps.size(); ++w) {
    block.warps[w].members = static_cast<int>(std::min<std::size_t>(32, count - 32 * w));
  }
  for (std::size_t i = 0; i < count; ++i) {
    Fiber& fiber = *block.fibers[i];
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = stack_bytes;
    fiber.start.uc_link = nullptr;
    fiber.started = fiber.ended = false;
    fiber.index = static_cast<unsigned>(i);
    fiber.copies.clear();
    fiber.groups = 0;
    makecontext(&fiber.start, &enter, 0);
  }
  for (std::size_t ended = 0; ended < count;) {
    const std::size_t before = ended;
    const std::uint64_t meetings = block.meetings;
    for (std::size_t i = 0; i < count; ++i) {
      Fiber& fiber = *block.fibers[i];
      if (fiber.ended) continue;
      resume(fiber);
      ended += fiber.ended ? 1 : 0;
    }
    if (ended == before && meetings == block.meetings) {
      std::fprintf(stderr, "block %u: threads wait for others that do not come\n", index);
      std::abort();
    }
  }
}

}  // namespace reelmesh::on_host

inline void __syncthreads() { reelmesh::on_host::meet(reelmesh::on_host::block.all); }

namespace reelmesh::gpu {

template <class T>
float widen(T x) {
  return static_cast<float>(x);
}
template <class T>
T narrow(float x) {
  return T(x);
}

inline float shuffle_xor(float x, int mask) {
  const int other = on_host::lane() ^ mask;
  return on_host::exchange(x, [&](auto&& of) { return of(other); });
}

template <class T>
T* shared_memory() {
  return reinterpret_cast<T*>(on_host::block.shared.data());
}

inline void atomic_add(std::int64_t* to, std::int64_t what) { *to += what; }

inline int compute_capability(Device) { return 90; }

struct Launch {
  const char* name;
  Device device;
  std::int64_t blocks;
  int threads = 256;
  std::int64_t shared_bytes = 0;
};

template <class... Parameters, class... Arguments>
void launch(const Launch& how, void (*kernel)(Parameters...), Arguments&&... arguments) {
  blockDim = {static_cast<unsigned>(how.threads)};
  gridDim = {static_cast<unsigned>(how.blocks)};
  on_host::block.shared.resize(static_cast<std::size_t>(how.shared_bytes));
  on_host::block.body = [&] { kernel(static_cast<Parameters>(arguments)...); };
  for (std::int64_t i = 0; i < how.blocks; ++i) {
    on_host::run_block(static_cast<unsigned>(i), how.threads);
  }
}

}  // namespace reelmesh::gpu
