#pragma once
#include <cstdint>
#include <memory>

namespace reelmesh {

/// Memory of at least `bytes` > 0, at multiples of 64 bytes, not cleared; null where none is left.
/// The operating system clears memory before it gives it away, which took a seventh of a denoising
/// step. So large blocks come from one range of addresses that keeps its pages: a block that is
/// freed joins its free neighbours, and serves the next that fits. Thread-safe.
std::shared_ptr<void> host_memory(std::int64_t bytes);

/// Gives the pages of free blocks back to the operating system: where a stage of a job ends and
/// the next needs memory of other sizes.
void release_free_memory();

/// Bytes of that range: in blocks, and in all, with what is free between and behind them.
struct HostMemory {
  std::int64_t used = 0, range = 0;
};
HostMemory host_memory_now();

}  // namespace reelmesh
