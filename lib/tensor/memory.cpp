#include "tensor/memory.hpp"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
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
#include <vector>

#include "tensor/purpose.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t alignment = 64;
constexpr std::int64_t page = 4096;
constexpr std::int64_t huge_page = 2 << 20;
// Smaller blocks come from malloc. With AddressSanitizer all do, so that it can check them.
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

// A best-fit allocator of whole pages in a reserved range of addresses; [0, top) has been allocated
// at some time. A page takes memory once it is touched. Blocks of different sizes leave holes
// between them: a fifth or more of the memory in use if blocks are few and large. So pages of holes
// beyond max_free_resident() are returned to the operating system, and resident memory stays near
// the peak of the memory in use.
class Range {
 public:
  // Without a range, all blocks come from malloc. So it is if the address space is limited to less
  // than twice the range, which would leave too little for everything else.
  Range() {
    const auto memory = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
    size_ = rounded(2 * memory, huge_page);
    rlimit space{};
    if (::getrlimit(RLIMIT_AS, &space) == 0 &&
        space.rlim_cur / 2 < static_cast<rlim_t>(size_)) {  // RLIM_INFINITY is the largest value
      size_ = 0;
      return;
    }
    void* addresses =
        ::mmap(nullptr, static_cast<std::size_t>(size_ + huge_page), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) {
      size_ = 0;
      return;
    }
    const auto at = reinterpret_cast<std::uintptr_t>(addresses);
    base_ = static_cast<std::byte*>(addresses) + (huge_page - at % huge_page) % huge_page;
    // Only a hint. With huge pages the first touch of memory takes a third of the time, and packed
    // weights cause fewer TLB misses.
    ::madvise(base_, static_cast<std::size_t>(size_), MADV_HUGEPAGE);
  }

  // Allocates `bytes`, a multiple of the page size; null if there is no room.
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
    peak_used_ = std::max(peak_used_, used_);
    touch(at, bytes);
    trim();
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
    kept_ = peak_used_ = used_;
    for (const auto& [first, length] : free_) {
      ::madvise(base_ + first, static_cast<std::size_t>(length), MADV_DONTNEED);
      const auto [begin, end] = huge_pages_within(first, length);
      for (std::int64_t i = begin; i < end; ++i) set_resident(i, false);
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

  // The huge pages [begin, end) that lie completely within [first, first + length).
  static std::pair<std::int64_t, std::int64_t> huge_pages_within(std::int64_t first,
                                                                 std::int64_t length) {
    const std::int64_t begin = (first + huge_page - 1) / huge_page;
    return {begin, std::max(begin, (first + length) / huge_page)};
  }

  void set_resident(std::int64_t page_number, bool resident) {
    const auto i = static_cast<std::size_t>(page_number);
    if (i >= resident_.size()) resident_.resize(i + 1);
    if (resident_[i] == resident) return;
    resident_[i] = resident;
    resident_bytes_ += resident ? huge_page : -huge_page;
  }
  // Marks the pages of a new block as resident: they are about to be touched.
  void touch(std::int64_t first, std::int64_t length) {
    const std::int64_t end = (first + length + huge_page - 1) / huge_page;
    for (std::int64_t i = first / huge_page; i < end; ++i) set_resident(i, true);
  }

  // Returns pages of the largest holes to the operating system, from the ends of the holes, because
  // new blocks are placed at their beginnings.
  void trim() {
    const std::int64_t limit = peak_used_ + max_free_resident(peak_used_ - kept_);
    for (auto hole = by_length_.rbegin(); hole != by_length_.rend(); ++hole) {
      if (resident_bytes_ <= limit) return;
      const auto [length, first] = *hole;
      auto [begin, end] = huge_pages_within(first, length);
      const auto resident = [&](std::int64_t i) { return resident_[static_cast<std::size_t>(i)]; };
      while (resident_bytes_ > limit && begin < end) {
        std::int64_t from = end;  // a run of resident pages
        for (; from > begin && resident(from - 1) && resident_bytes_ > limit; --from) {
          set_resident(from - 1, false);
        }
        if (from < end) {
          ::madvise(base_ + from * huge_page, static_cast<std::size_t>((end - from) * huge_page),
                    MADV_DONTNEED);
        }
        end = from;
        while (end > begin && !resident(end - 1)) --end;
      }
    }
  }

  std::mutex mutex_;
  std::byte* base_ = nullptr;
  std::int64_t size_ = 0, top_ = 0, used_ = 0;
  std::int64_t kept_ = 0, peak_used_ = 0;  // in use at the last release(); peak since then
  std::vector<bool> resident_;             // by huge page: touched and not returned since
  std::int64_t resident_bytes_ = 0;
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

HostMemory host_memory_now() { return range().now(); }

}  // namespace reelmesh
