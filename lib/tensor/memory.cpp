#include "tensor/memory.hpp"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace reelmesh {
namespace {

constexpr std::int64_t alignment = 64;
constexpr std::int64_t page = 4096;
constexpr std::int64_t huge_page = 2 << 20;
// Smaller blocks are malloc's business, and all are where AddressSanitizer watches over them.
#ifdef __SANITIZE_ADDRESS__
constexpr std::int64_t large = std::numeric_limits<std::int64_t>::max();
#else
constexpr std::int64_t large = std::int64_t{256} << 10;
#endif

std::int64_t rounded(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

void* plain_block(std::int64_t bytes) {
  return std::aligned_alloc(alignment, static_cast<std::size_t>(rounded(bytes, alignment)));
}

// A range of addresses, of which [0, top) has been given out at some time: best fit, in pages.
// Pages are the operating system's until they are touched.
class Range {
 public:
  Range() {
    const auto memory = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
    size_ = rounded(2 * memory, huge_page);
    void* addresses =
        ::mmap(nullptr, static_cast<std::size_t>(size_ + huge_page), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) {  // a limit on addresses: malloc has to do
      size_ = 0;
      return;
    }
    const auto at = reinterpret_cast<std::uintptr_t>(addresses);
    base_ = static_cast<std::byte*>(addresses) + (huge_page - at % huge_page) % huge_page;
    // Only a hint. With huge pages memory takes a third of the time to touch, and packed weights
    // miss the address cache less often.
    ::madvise(base_, static_cast<std::size_t>(size_), MADV_HUGEPAGE);
  }

  // A block of so many bytes, a multiple of the page; null if there is no room.
  void* take(std::int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    std::int64_t at = 0;
    const auto fit = by_length_.lower_bound({bytes, 0});
    if (fit != by_length_.end()) {
      const auto [length, first] = *fit;
      remove(first, length);
      if (length > bytes) add(first + bytes, length - bytes);
      at = first;
    } else {
      at = top_;
      if (!free_.empty()) {  // the last free block may reach the top
        const auto [first, length] = *std::prev(free_.end());
        if (first + length == top_) at = first;
      }
      if (bytes > size_ - at) return nullptr;
      if (at < top_) remove(at, top_ - at);
      top_ = at + bytes;
    }
    used_ += bytes;
    return base_ + at;
  }

  void give_back(void* block, std::int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    used_ -= bytes;
    std::int64_t first = static_cast<std::byte*>(block) - base_, length = bytes;
    const auto after = free_.lower_bound(first);
    if (after != free_.end() && after->first == first + length) {
      const std::int64_t more = after->second;
      remove(first + length, more);
      length += more;
    }
    const auto next = free_.lower_bound(first);
    if (next != free_.begin()) {
      const auto [before, extent] = *std::prev(next);
      if (before + extent == first) {
        remove(before, extent);
        first = before;
        length += extent;
      }
    }
    add(first, length);
  }

  void release() {
    const std::scoped_lock lock(mutex_);
    for (const auto& [first, length] : free_) {
      ::madvise(base_ + first, static_cast<std::size_t>(length), MADV_DONTNEED);
    }
    if (free_.empty()) return;
    const auto [first, length] = *std::prev(free_.end());
    if (first + length == top_) {
      remove(first, length);
      top_ = first;
    }
  }

  HostMemory now() {
    const std::scoped_lock lock(mutex_);
    return {used_, top_};
  }

 private:
  void add(std::int64_t first, std::int64_t length) {
    free_.emplace(first, length);
    by_length_.emplace(length, first);
  }
  void remove(std::int64_t first, std::int64_t length) {
    free_.erase(first);
    by_length_.erase({length, first});
  }

  std::mutex mutex_;
  std::byte* base_ = nullptr;
  std::int64_t size_ = 0, top_ = 0, used_ = 0;
  std::map<std::int64_t, std::int64_t> free_;                  // first byte → length
  std::set<std::pair<std::int64_t, std::int64_t>> by_length_;  // length, first byte
};

// Never destroyed: tensors of static objects may outlive it.
Range& range() {
  static auto& instance = *new Range;
  return instance;
}

}  // namespace

std::shared_ptr<void> host_memory(std::int64_t bytes) {
  if (bytes >= large) {
    const std::int64_t length = rounded(bytes, page);
    if (void* block = range().take(length)) {
      return {block, [length](void* p) { range().give_back(p, length); }};
    }
  }
  void* block = plain_block(bytes);
  return block == nullptr ? nullptr : std::shared_ptr<void>(block, std::free);
}

void release_free_memory() {
  range().release();
  ::malloc_trim(0);
}

HostMemory host_memory_now() { return range().now(); }

}  // namespace reelmesh
