#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

namespace reelmesh {

/// Memory of at least `bytes` > 0, at multiples of 64 bytes, not cleared; null where none is left.
/// The operating system clears memory before it gives it away, which took a seventh of a denoising
/// step. So large blocks come from one range of addresses that keeps its pages: a block that is
/// freed joins its free neighbours, and serves the next that fits. Of the free pages between blocks
/// some are given back where they are more than holes_kept() allows. Thread-safe.
std::shared_ptr<void> host_memory(std::int64_t bytes);

/// Gives the pages of free blocks back to the operating system: where a stage of a job ends and
/// the next needs memory of other sizes, and where its weights are loaded.
void release_free_memory();

/// Bytes of free pages that stay resident beside blocks: a tenth of `working`, the most that was
/// taken at once beyond what was in use when free memory was last released, or 32 MiB where that is
/// more. Memory plans count on it.
constexpr std::int64_t holes_kept(std::int64_t working) {
  return std::max(std::int64_t{32} << 20, working / 10);
}

/// Bytes of that range: in blocks, and in all, with what is free between and behind them.
struct HostMemory {
  std::int64_t used = 0, range = 0;
};
HostMemory host_memory_now();

}  // namespace reelmesh
