#pragma once
// The places of blocks in a range of addresses, and which of its pages are resident: the rules of
// host_memory() (tensor/memory.hpp), without memory. A dry run uses them, too (tensor/ledger.hpp).
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace reelmesh {

/// Pages of the operating system, and those that it may back with one entry of its tables.
constexpr std::int64_t page_bytes = 4096, huge_page_bytes = 2 << 20;

/// Bytes that blocks of host_memory() have at least to be in the range. Smaller ones come from
/// malloc. With AddressSanitizer all do, so that it can check them.
#ifdef __SANITIZE_ADDRESS__
constexpr std::int64_t min_range_block = INT64_MAX;
#else
constexpr std::int64_t min_range_block = std::int64_t{256} << 10;
#endif

/// Best fit of whole pages; [0, top()) has been in use at some time. A page takes memory once it is
/// touched. Blocks of different sizes leave holes between them: a fifth or more of the memory in
/// use if blocks are few and large. So pages of holes beyond max_free_resident() are returned to
/// the operating system, and resident memory stays near the peak of the memory in use.
class BlockRange {
 public:
  /// Called with the first byte and the length of huge pages that are returned.
  using Return = std::function<void(std::int64_t first, std::int64_t length)>;

  /// bytes: of the range.
  explicit BlockRange(std::int64_t bytes, Return give_to_system = {})
      : size_(bytes), give_to_system_(std::move(give_to_system)) {}

  /// The length of a block for so many bytes.
  static std::int64_t length_of(std::int64_t bytes) {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
  }

  /// The first byte of a new block, whose length is a multiple of the page size; nullopt if there
  /// is no room.
  std::optional<std::int64_t> take(std::int64_t length);
  void give_back(std::int64_t first, std::int64_t length);
  /// Returns the pages of all holes.
  void release();

  std::int64_t used() const { return used_; }
  std::int64_t top() const { return top_; }
  std::int64_t resident() const { return resident_bytes_; }  ///< in whole huge pages

 private:
  void add(std::int64_t first, std::int64_t length);
  void remove(std::int64_t first, std::int64_t length);
  void set_resident(std::int64_t page_number, bool resident);
  void touch(std::int64_t first, std::int64_t length);
  void trim();

  std::int64_t size_, top_ = 0, used_ = 0;
  Return give_to_system_;
  std::int64_t kept_ = 0, peak_used_ = 0;  // in use at the last release(); peak since then
  std::vector<bool> is_resident_;          // by huge page: touched and not returned since
  std::int64_t resident_bytes_ = 0;
  std::map<std::int64_t, std::int64_t> free_;                  // first byte → length
  std::set<std::pair<std::int64_t, std::int64_t>> by_length_;  // length, first byte
};

}  // namespace reelmesh
