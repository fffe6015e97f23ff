#pragma once
// Who holds which part of a global array: a value without communicator, tested without MPI.
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// A block of a global array: offset and extent along every axis. Empty when an extent is 0.
struct Box {
  Shape offset;
  Shape extent;

  bool empty() const;
  std::int64_t numel() const;
  std::int64_t end(std::size_t axis) const { return offset.at(axis) + extent.at(axis); }
  bool contains(const Box& other) const;
  friend bool operator==(const Box&, const Box&) = default;
};

Box whole_box(const Shape& global);
Box intersect(const Box& a, const Box& b);  ///< empty extents where they do not meet
std::string to_string(const Box& box);      ///< "[0:3, 4:7]"

/// Offset of part `index` of `extent` cut into `parts` as evenly as integers allow; the first
/// extent % parts parts are larger by one. cut_offset(extent, parts, parts) == extent.
std::int64_t cut_offset(std::int64_t extent, std::int64_t parts, std::int64_t index);

/// `extent` cut into a part for each of `speeds` (positive; empty is not allowed), such that the
/// part that takes longest, length divided by speed, is as short as integers allow: the offsets of
/// the parts, and `extent` at the end. Equal speeds give the parts of cut_offset.
std::vector<std::int64_t> cut_by_speed(std::int64_t extent, const std::vector<double>& speeds);

/// The global shape and the box of each rank of a group. Boxes may be uneven and empty. Either they
/// are disjoint and cover the array (a partition), or all that are not empty are equal to the whole
/// array (replicated, on some or all ranks), or they overlap (halos; only as a destination).
class Layout {
 public:
  Layout() = default;
  Layout(Shape global, std::vector<Box> boxes);

  /// Every rank holds everything.
  static Layout replicated(Shape global, int ranks);
  /// Only `rank` holds everything.
  static Layout on_one_rank(Shape global, int ranks, int rank);
  /// One axis cut into `ranks` parts, by the speeds of the ranks where these are given.
  static Layout cut(Shape global, std::size_t axis, int ranks,
                    const std::vector<double>& speeds = {});
  /// parts[i] cuts along axis i; ranks = the product; the last axis varies fastest over ranks. With
  /// speeds, ranks that share a part of an axis cut it among themselves along the next.
  static Layout grid(Shape global, const std::vector<int>& parts,
                     const std::vector<double>& speeds = {});

  const Shape& global() const { return global_; }
  int ranks() const { return static_cast<int>(boxes_.size()); }
  const Box& box(int rank) const { return boxes_.at(static_cast<std::size_t>(rank)); }
  bool is_partition() const;
  bool is_replicated() const;  ///< on at least one rank; ranks with empty boxes do not count

  /// The same boxes for ranks [first, first + ranks()) of a larger group; empty boxes elsewhere.
  Layout embed(int first, int ranks) const;
  /// The boxes of ranks [first, first + count) alone, which hold all that there is.
  Layout part(int first, int count) const;
  /// Global extents and boxes multiplied along `axis`.
  Layout scaled(std::size_t axis, std::int64_t factor) const;
  /// Every box that is not empty grown by `width` on both sides along `axis`, within the array.
  Layout grown(std::size_t axis, std::int64_t width) const;
  /// Without the first `count` entries of `axis`: boxes lose their share and move forward.
  Layout without_front(std::size_t axis, std::int64_t count) const;
  /// With `axis` inserted, whole on every rank.
  Layout with_axis(std::size_t axis, std::int64_t extent) const;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  Shape global_;
  std::vector<Box> boxes_;
};

std::string to_string(const Layout& layout);  ///< one box a rank, for messages and attributes

}  // namespace reelmesh
