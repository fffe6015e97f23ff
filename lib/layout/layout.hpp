#pragma once
// Which rank holds which part of a global array: a value without communicator, tested without MPI.
#include <cstdint>
#include <memory>
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
Box intersect(const Box& a, const Box& b);  ///< empty if the boxes do not overlap
std::string to_string(const Box& box);      ///< "[0:3, 4:7]"

/// Offset of part `index` of `extent` cut into `parts` as evenly as integers allow; the first
/// extent % parts parts are larger by one. cut_offset(extent, parts, parts) == extent.
std::int64_t cut_offset(std::int64_t extent, std::int64_t parts, std::int64_t index);

/// Relative speeds of the ranks of a group, in rank order; all positive. Empty: all equal.
using RankWeights = std::vector<double>;

/// Cuts `extent` into one part per rank such that the maximum of length / weight is minimal. → the
/// offsets of the parts, then `extent`. Equal weights give the parts of cut_offset. Time:
/// ranks × log(ranks). Error(internal) for a weight that is not positive and finite.
std::vector<std::int64_t> cut_by_weight(std::int64_t extent, const RankWeights& weights);

/// The global shape and the box of each rank of a group. Boxes may be uneven and empty. A layout is
/// a partition (boxes are disjoint and cover the array), or replicated (each non-empty box is the
/// whole array, on some or all ranks), or its boxes overlap (halos; only as a destination).
/// Immutable; copies share the boxes.
class Layout {
 public:
  Layout();
  Layout(Shape global, std::vector<Box> boxes);

  /// Every rank holds everything.
  static Layout replicated(Shape global, int ranks);
  /// Only `rank` holds everything.
  static Layout on_one_rank(Shape global, int ranks, int rank);
  /// One axis cut into `ranks` parts, in proportion to the weights.
  static Layout cut(Shape global, std::size_t axis, int ranks, const RankWeights& weights = {});
  /// parts[i] parts along axis i; number of ranks = the product; the last axis varies fastest over
  /// ranks. Weights: an axis is cut in proportion to the summed weights of the ranks of each part,
  /// and those ranks divide the part among themselves along the next axes.
  static Layout grid(Shape global, const std::vector<int>& parts, const RankWeights& weights = {});

  const Shape& global() const { return global_; }
  int ranks() const { return static_cast<int>(boxes_->size()); }
  const Box& box(int rank) const { return boxes_->at(static_cast<std::size_t>(rank)); }
  /// Whether the boxes are disjoint and cover the array. Time: ranks × log(ranks).
  bool is_partition() const;
  bool is_replicated() const;  ///< on at least one rank; empty boxes are ignored

  /// The boxes of the given ranks only, in that order: the layout of a subgroup of these ranks.
  Layout of_ranks(const std::vector<int>& ranks) const;
  /// With an empty box for each rank whose box an earlier rank has, too.
  Layout without_copies() const;
  /// Global extents and boxes multiplied along `axis`.
  Layout scaled(std::size_t axis, std::int64_t factor) const;
  /// Every box that is not empty grown by `width` on both sides along `axis`, within the array.
  Layout grown(std::size_t axis, std::int64_t width) const { return grown(axis, width, width); }
  /// The same with different widths before and after the box.
  Layout grown(std::size_t axis, std::int64_t before, std::int64_t after) const;
  /// The layout of entries [begin, end) of `axis` only, renumbered from 0.
  Layout cropped(std::size_t axis, std::int64_t begin, std::int64_t end) const;
  /// With `axis` inserted, whole on every rank.
  Layout with_axis(std::size_t axis, std::int64_t extent) const;
  /// With `axis` removed. Error(internal) unless it is whole in every non-empty box.
  Layout without_axis(std::size_t axis) const;

  friend bool operator==(const Layout& a, const Layout& b) {
    return a.global_ == b.global_ && (a.boxes_ == b.boxes_ || *a.boxes_ == *b.boxes_);
  }

 private:
  Shape global_;
  std::shared_ptr<const std::vector<Box>> boxes_;  ///< never null
};

std::string to_string(const Layout& layout);  ///< one box per rank, for messages and attributes

}  // namespace reelmesh
