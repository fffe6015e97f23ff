#pragma once
// Runs the threads of a kernel on the host as fibers, which synchronize at barriers and in warp
// collectives. A fiber that has finished a thread starts the next one, so that a thread without
// synchronization costs no more than a function call. One kernel runs at a time, one block after
// the other. Shared memory starts as NaN. Aborts the process if threads wait for others that have
// ended or wait elsewhere, or if a thread writes beyond shared memory. Threads run by number
// between barriers, and blocks too, or in random order (REELMESH_EMULATED_GPU_ORDER).
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace reelmesh::on_host {

constexpr int lanes = 32;

struct Grid {
  const char* name;
  std::int64_t blocks;
  int threads;  ///< per block
  std::size_t shared_bytes;
};

/// Runs `thread` once for each thread of each block.
void run(const Grid& grid, const std::function<void()>& thread);

/// The following functions are called by the threads of a kernel.
void barrier();  ///< __syncthreads()
int lane();
std::byte* shared_memory();

/// A collective of the warp: returns when all its lanes have called it. The last lane to arrive
/// calls `together` with the arguments of all lanes, indexed by lane.
using Together = void (*)(void* const* brought, int count);
void warp_collective(void* brought, Together together);
/// The same; aborts the process if the warp has fewer than 32 threads.
void full_warp_collective(void* brought, Together together);
/// Aborts the process if the address is not aligned to 16 bytes.
void expect_aligned(const void* address);

/// cp.async of 16 bytes. Copies are made only when the thread waits for their group:
/// wait_for_groups() waits for all but the last `remaining` groups.
void copy_async(void* into, const void* from);
void end_group();
void wait_for_groups(int remaining);

}  // namespace reelmesh::on_host
