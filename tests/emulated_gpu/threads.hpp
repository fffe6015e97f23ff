#pragma once
// The threads of a kernel on the host: fibers that meet at barriers and in the collective
// operations of a warp. A fiber that ends a thread goes on with the next, so that threads which
// meet nobody cost no more than a call. One kernel runs at a time, block by block. Ends the process
// where threads wait for others that have ended or are elsewhere, or write beyond shared memory,
// which starts as NaN.
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
  int threads;  ///< of a block
  std::size_t shared_bytes;
};

/// Runs `thread` once for each thread of each block.
void run(const Grid& grid, const std::function<void()>& thread);

/// What follows is for threads of a kernel.
void barrier();  ///< of the block
int lane();
std::byte* shared_memory();

/// All lanes of the warp come here; the last one calls `together` with what all of them brought,
/// by lane.
using Together = void (*)(void* const* brought, int count);
void meet_warp(void* brought, Together together);
/// The same; ends the process where the warp has fewer than 32 threads.
void meet_whole_warp(void* brought, Together together);
/// Ends the process where 16 bytes at this address cannot be had at once.
void expect_aligned(const void* address);

/// 16 bytes on their way, until the thread waits for all but the last `remaining` groups.
void copy_later(void* into, const void* from);
void end_group();
void wait_for_groups(int remaining);

}  // namespace reelmesh::on_host
