#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

namespace reelmesh {

/// Uninitialised memory of at least `bytes` > 0, aligned to 64 bytes; null if there is none left.
/// The operating system clears new pages, which took a seventh of a denoising step. So large blocks
/// come from one range of addresses whose pages stay resident: a freed block is merged with its
/// free neighbours and reused for the next block that fits. (Not for Purpose::queue.) If the free
/// pages between blocks exceed max_free_resident(), some of them are returned to the operating
/// system. Thread-safe.
std::shared_ptr<void> host_memory(std::int64_t bytes);

/// Returns the pages of free blocks to the operating system. Called when a stage of a job ends,
/// because the next stage needs blocks of other sizes, and when its weights have been loaded.
void release_free_memory();

/// Maximum bytes that stay resident in free pages, beyond the peak of the bytes in use. working:
/// that peak since release_free_memory() was last called, minus the bytes in use at that time.
/// Memory plans include it.
constexpr std::int64_t max_free_resident(std::int64_t working) {
  return std::max(std::int64_t{32} << 20, working / 10);
}

/// Bytes of the range of large blocks: in use, and in total with the free space between and behind
/// blocks.
struct HostMemoryInUse {
  std::int64_t used = 0, range = 0;
};
HostMemoryInUse host_memory_in_use();

}  // namespace reelmesh
