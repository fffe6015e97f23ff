#include "tensor/block_range.hpp"

#include <algorithm>
#include <iterator>

#include "tensor/memory.hpp"

namespace reelmesh {
namespace {

// The huge pages [begin, end) that lie completely within [first, first + length).
std::pair<std::int64_t, std::int64_t> huge_pages_within(std::int64_t first, std::int64_t length) {
  const std::int64_t begin = (first + huge_page_bytes - 1) / huge_page_bytes;
  return {begin, std::max(begin, (first + length) / huge_page_bytes)};
}

}  // namespace

std::optional<std::int64_t> BlockRange::take(std::int64_t length) {
  std::int64_t at = 0;
  const auto fit = by_length_.lower_bound({length, 0});
  if (fit != by_length_.end()) {
    const auto [hole, first] = *fit;
    remove(first, hole);
    if (hole > length) add(first + length, hole - length);
    at = first;
  } else {
    at = top_;
    if (!free_.empty()) {  // the last hole may reach the top
      const auto [first, hole] = *std::prev(free_.end());
      if (first + hole == top_) at = first;
    }
    if (length > size_ - at) return std::nullopt;
    if (at < top_) remove(at, top_ - at);
    top_ = at + length;
  }
  used_ += length;
  peak_used_ = std::max(peak_used_, used_);
  touch(at, length);
  trim();
  return at;
}

void BlockRange::give_back(std::int64_t first, std::int64_t length) {
  used_ -= length;
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

void BlockRange::release() {
  kept_ = peak_used_ = used_;
  for (const auto& [first, length] : free_) {
    if (give_to_system_) give_to_system_(first, length);
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

void BlockRange::add(std::int64_t first, std::int64_t length) {
  free_.emplace(first, length);
  by_length_.emplace(length, first);
}

void BlockRange::remove(std::int64_t first, std::int64_t length) {
  free_.erase(first);
  by_length_.erase({length, first});
}

void BlockRange::set_resident(std::int64_t page_number, bool resident) {
  const auto i = static_cast<std::size_t>(page_number);
  if (i >= is_resident_.size()) is_resident_.resize(i + 1);
  if (is_resident_[i] == resident) return;
  is_resident_[i] = resident;
  resident_bytes_ += resident ? huge_page_bytes : -huge_page_bytes;
}

// Marks the pages of a new block as resident: they are about to be touched.
void BlockRange::touch(std::int64_t first, std::int64_t length) {
  const std::int64_t end = (first + length + huge_page_bytes - 1) / huge_page_bytes;
  for (std::int64_t i = first / huge_page_bytes; i < end; ++i) set_resident(i, true);
}

// Returns pages of the largest holes to the operating system, from the ends of the holes, because
// new blocks are placed at their beginnings.
void BlockRange::trim() {
  const std::int64_t limit = peak_used_ + max_free_resident(peak_used_ - kept_);
  for (auto hole = by_length_.rbegin(); hole != by_length_.rend(); ++hole) {
    if (resident_bytes_ <= limit) return;
    const auto [length, first] = *hole;
    auto [begin, end] = huge_pages_within(first, length);
    const auto resident = [&](std::int64_t i) { return is_resident_[static_cast<std::size_t>(i)]; };
    while (resident_bytes_ > limit && begin < end) {
      std::int64_t from = end;  // a run of resident pages
      for (; from > begin && resident(from - 1) && resident_bytes_ > limit; --from) {
        set_resident(from - 1, false);
      }
      if (from < end && give_to_system_) {
        give_to_system_(from * huge_page_bytes, (end - from) * huge_page_bytes);
      }
      end = from;
      while (end > begin && !resident(end - 1)) --end;
    }
  }
}

}  // namespace reelmesh
