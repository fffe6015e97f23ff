#include "tensor/memory.hpp"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "tensor/block_range.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t alignment = 64;

std::int64_t rounded(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

void* plain_block(std::int64_t bytes) {
  return std::aligned_alloc(alignment, static_cast<std::size_t>(rounded(bytes, alignment)));
}

// Reserved addresses and the blocks in them.
class Range {
 public:
  // Without a range, all blocks come from malloc. So it is if the address space is limited to less
  // than twice the range, which would leave too little for everything else.
  Range() : blocks_(0) {
    const auto memory = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
    const std::int64_t size = rounded(2 * memory, huge_page_bytes);
    rlimit space{};
    if (::getrlimit(RLIMIT_AS, &space) == 0 &&
        space.rlim_cur / 2 < static_cast<rlim_t>(size)) {  // RLIM_INFINITY is the largest value
      return;
    }
    void* addresses =
        ::mmap(nullptr, static_cast<std::size_t>(size + huge_page_bytes), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) return;
    const auto at = reinterpret_cast<std::uintptr_t>(addresses);
    base_ = static_cast<std::byte*>(addresses) +
            (huge_page_bytes - at % huge_page_bytes) % huge_page_bytes;
    // Only a hint. With huge pages the first touch of memory takes a third of the time, and packed
    // weights cause fewer TLB misses.
    ::madvise(base_, static_cast<std::size_t>(size), MADV_HUGEPAGE);
    blocks_ = BlockRange(size, [this](std::int64_t first, std::int64_t length) {
      ::madvise(base_ + first, static_cast<std::size_t>(length), MADV_DONTNEED);
    });
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  // Null if there is no room.
  void* take(std::int64_t length) {
    const std::scoped_lock lock(mutex_);
    const std::optional<std::int64_t> at = blocks_.take(length);
    return at ? base_ + *at : nullptr;
  }
  void give_back(void* block, std::int64_t length) {
    const std::scoped_lock lock(mutex_);
    blocks_.give_back(static_cast<std::byte*>(block) - base_, length);
  }
  void release() {
    const std::scoped_lock lock(mutex_);
    blocks_.release();
  }
  HostMemoryInUse now() {
    const std::scoped_lock lock(mutex_);
    return {blocks_.used(), blocks_.top()};
  }

 private:
  std::mutex mutex_;
  std::byte* base_ = nullptr;
  BlockRange blocks_;
};

// Never destroyed: tensors of static objects may outlive it.
Range& range() {
  static auto& instance = *new Range;
  return instance;
}

}  // namespace

std::shared_ptr<void> host_memory(std::int64_t bytes) {
  // What waits outlives the stage in which it was made, and would leave a hole before it.
  if (bytes >= min_range_block && current_purpose() != Purpose::queue) {
    const std::int64_t length = BlockRange::length_of(bytes);
    if (void* block = range().take(length)) {
      const Purpose purpose = count_memory({}, length);
      return {block, [length, purpose](void* p) {
                count_freed({}, length, purpose);
                range().give_back(p, length);
              }};
    }
  }
  void* block = plain_block(bytes);
  if (block == nullptr) return nullptr;
  const Purpose purpose = count_memory({}, bytes);
  return {block, [bytes, purpose](void* p) {
            count_freed({}, bytes, purpose);
            std::free(p);
          }};
}

void release_free_memory() {
  range().release();
  ::malloc_trim(0);
}

HostMemoryInUse host_memory_in_use() { return range().now(); }

}  // namespace reelmesh
