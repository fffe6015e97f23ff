#include "layout/layout.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <set>

#include "base/number.hpp"
#include "base/units.hpp"

namespace reelmesh {

bool Box::empty() const {
  return std::any_of(extent.begin(), extent.end(), [](std::int64_t e) { return e <= 0; });
}

std::int64_t Box::numel() const { return empty() ? 0 : reelmesh::numel(extent); }

bool Box::contains(const Box& other) const {
  for (std::size_t axis = 0; axis < offset.size(); ++axis) {
    if (other.offset[axis] < offset[axis] || other.end(axis) > end(axis)) return false;
  }
  return true;
}

Box whole_box(const Shape& global) { return {Shape(global.size(), 0), global}; }

namespace {

Box empty_box(const Shape& global) { return {Shape(global.size(), 0), Shape(global.size(), 0)}; }

}  // namespace

Box intersect(const Box& a, const Box& b) {
  Box both = a;
  for (std::size_t axis = 0; axis < a.offset.size(); ++axis) {
    both.offset[axis] = std::max(a.offset[axis], b.offset[axis]);
    both.extent[axis] =
        std::max<std::int64_t>(0, std::min(a.end(axis), b.end(axis)) - both.offset[axis]);
  }
  return both;
}

std::string to_string(const Box& box) {
  if (box.empty()) return "[]";
  std::string text = "[";
  for (std::size_t axis = 0; axis < box.offset.size(); ++axis) {
    text += fmt::format("{}{}:{}", axis == 0 ? "" : ", ", box.offset[axis], box.end(axis));
  }
  return text + "]";
}

std::int64_t cut_offset(std::int64_t extent, std::int64_t parts, std::int64_t index) {
  return index * (extent / parts) + std::min(index, extent % parts);
}

std::vector<std::int64_t> cut_by_weight(std::int64_t extent, const RankWeights& weights) {
  double sum = 0;
  for (const double weight : weights) {
    expect(weight > 0 && std::isfinite(weight), "a rank of weight {}", weight);
    sum += weight;
  }
  // No part is shorter than its exact share rounded down. One less, in case the floating-point
  // share was rounded up.
  std::vector<std::int64_t> parts;
  std::int64_t rest = extent;
  for (const double weight : weights) {
    const double share = std::floor(static_cast<double>(extent) * (weight / sum)) - 1;
    parts.push_back(std::max<std::int64_t>(0, to_integer(share)));
    rest -= parts.back();
  }
  // The rest is handed out one by one: to the part with the smallest (length + 1) / weight, the
  // first of several.
  using Finish = std::pair<double, std::size_t>;
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> next;
  const auto finish = [&](std::size_t i) {
    return Finish{static_cast<double>(parts[i] + 1) / weights[i], i};
  };
  for (std::size_t i = 0; i < parts.size(); ++i) next.push(finish(i));
  for (; rest > 0; --rest) {
    const std::size_t first = next.top().second;
    next.pop();
    ++parts[first];
    next.push(finish(first));
  }
  std::vector<std::int64_t> offsets{0};
  for (const std::int64_t part : parts) offsets.push_back(offsets.back() + part);
  return offsets;
}

Layout::Layout() : Layout(Shape{}, {}) {}

Layout::Layout(Shape global, std::vector<Box> boxes)
    : global_(std::move(global)),
      boxes_(std::make_shared<const std::vector<Box>>(std::move(boxes))) {
  const Box whole = whole_box(global_);
  for (const Box& box : *boxes_) {
    expect(box.offset.size() == global_.size() && box.extent.size() == global_.size(),
           "a box of rank {} in a layout of {}", box.offset.size(), global_);
    if (box.empty() || whole.contains(box)) continue;
    fail(Status::internal, "box {} is not inside {}", to_string(box), global_);
  }
}

Layout Layout::replicated(Shape global, int ranks) {
  std::vector<Box> boxes(static_cast<std::size_t>(ranks), whole_box(global));
  return {std::move(global), std::move(boxes)};
}

Layout Layout::on_one_rank(Shape global, int ranks, int rank) {
  std::vector<Box> boxes(static_cast<std::size_t>(ranks), empty_box(global));
  boxes.at(static_cast<std::size_t>(rank)) = whole_box(global);
  return {std::move(global), std::move(boxes)};
}

Layout Layout::cut(Shape global, std::size_t axis, int ranks, const RankWeights& weights) {
  std::vector<int> parts(global.size(), 1);
  parts.at(axis) = ranks;
  return grid(std::move(global), parts, weights);
}

Layout Layout::grid(Shape global, const std::vector<int>& parts, const RankWeights& weights) {
  expect(parts.size() == global.size(), "{} cuts for {} axes", parts.size(), global.size());
  std::size_t ranks = 1;
  for (std::size_t axis = 0; axis < parts.size(); ++axis) {
    expect(parts[axis] > 0, "axis {} is cut into {} parts", axis, parts[axis]);
    ranks *= static_cast<std::size_t>(parts[axis]);
  }
  expect(weights.empty() || weights.size() == ranks, "{} weights for {} ranks", weights.size(),
         ranks);
  std::vector<Box> boxes{empty_box(global)};
  std::size_t sharing = ranks;  // number of ranks that share one box so far
  for (std::size_t axis = 0; axis < parts.size(); ++axis) {
    const auto count = static_cast<std::size_t>(parts[axis]);
    sharing /= count;
    std::vector<Box> finer;
    finer.reserve(boxes.size() * count);
    for (Box& box : boxes) {
      std::vector<std::int64_t> offsets;
      if (weights.empty()) {
        for (int i = 0; i <= parts[axis]; ++i) {
          offsets.push_back(cut_offset(global[axis], parts[axis], i));
        }
      } else {
        RankWeights sums(count, 0.0);
        const std::size_t first = finer.size() * sharing;
        for (std::size_t i = 0; i < count * sharing; ++i) sums[i / sharing] += weights[first + i];
        offsets = cut_by_weight(global[axis], sums);
      }
      for (std::size_t i = 0; i < count; ++i) {
        finer.push_back(box);
        finer.back().offset[axis] = offsets[i];
        finer.back().extent[axis] = offsets[i + 1] - offsets[i];
      }
    }
    boxes = std::move(finer);
  }
  return {std::move(global), std::move(boxes)};
}

namespace {

// Whether the boxes cover the array exactly once, i.e. whether their indicator functions add up to
// that of the array. That is so if and only if the mixed differences along all axes agree. Those
// are non-zero only at corners: a box has +1 at corners with an even number of upper sides and −1
// at the others. So at each point the signs of all boxes must add up to the sign of the array.
bool cover_once(const Shape& global, const std::vector<Box>& boxes) {
  // Along axes that no box cuts, all boxes have the same corners; these axes are skipped.
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < global.size(); ++axis) {
    const bool whole = std::all_of(boxes.begin(), boxes.end(), [&](const Box& box) {
      return box.empty() || box.extent[axis] == global[axis];
    });
    if (!whole) axes.push_back(axis);
  }
  struct Corner {
    std::int64_t index;  // row-major index among all possible corners
    int sign;
  };
  std::vector<Corner> corners;
  corners.reserve((boxes.size() + 1) << axes.size());
  const auto add = [&](const Box& box, int sign) {
    if (box.empty()) return;
    for (std::size_t upper = 0; upper < std::size_t{1} << axes.size(); ++upper) {
      Corner corner{0, sign};
      for (std::size_t i = 0; i < axes.size(); ++i) {
        const bool at_end = (upper >> i & 1) != 0;
        corner.index = checked_product(corner.index, global[axes[i]] + 1, "corners of a layout") +
                       (at_end ? box.end(axes[i]) : box.offset[axes[i]]);
        if (at_end) corner.sign = -corner.sign;
      }
      corners.push_back(corner);
    }
  };
  for (const Box& box : boxes) add(box, 1);
  add(whole_box(global), -1);
  std::ranges::sort(corners, {}, &Corner::index);
  int sum = 0;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    sum += corners[i].sign;
    const bool last = i + 1 == corners.size() || corners[i + 1].index != corners[i].index;
    if (last && sum != 0) return false;
    if (last) sum = 0;
  }
  return true;
}

}  // namespace

bool Layout::is_partition() const { return cover_once(global_, *boxes_); }

bool Layout::is_replicated() const {
  const Box whole = whole_box(global_);
  bool held = false;
  for (const Box& box : *boxes_) {
    if (box.empty()) continue;
    if (box != whole) return false;
    held = true;
  }
  return held;
}

Layout Layout::of_ranks(const std::vector<int>& ranks) const {
  std::vector<Box> boxes;
  boxes.reserve(ranks.size());
  for (const int rank : ranks) boxes.push_back(box(rank));
  return {global_, std::move(boxes)};
}

Layout Layout::without_copies() const {
  std::vector<Box> boxes = *boxes_;
  std::set<std::pair<Shape, Shape>> seen;
  for (Box& box : boxes) {
    if (!seen.insert({box.offset, box.extent}).second) std::ranges::fill(box.extent, 0);
  }
  return {global_, std::move(boxes)};
}

Layout Layout::scaled(std::size_t axis, std::int64_t factor) const {
  Shape global = global_;
  global.at(axis) *= factor;
  std::vector<Box> boxes = *boxes_;
  for (Box& box : boxes) {
    box.offset[axis] *= factor;
    box.extent[axis] *= factor;
  }
  return {std::move(global), std::move(boxes)};
}

Layout Layout::grown(std::size_t axis, std::int64_t before, std::int64_t after) const {
  std::vector<Box> boxes = *boxes_;
  for (Box& box : boxes) {
    if (box.empty()) continue;
    const std::int64_t begin = std::max<std::int64_t>(0, box.offset[axis] - before);
    const std::int64_t end = std::min(global_.at(axis), box.end(axis) + after);
    box.offset[axis] = begin;
    box.extent[axis] = end - begin;
  }
  return {global_, std::move(boxes)};
}

Layout Layout::cropped(std::size_t axis, std::int64_t begin, std::int64_t end) const {
  expect(begin >= 0 && begin <= end && end <= global_.at(axis), "axis {} of {} cropped to {}:{}",
         axis, global_, begin, end);
  Shape global = global_;
  global[axis] = end - begin;
  std::vector<Box> boxes = *boxes_;
  for (Box& box : boxes) {
    const std::int64_t first = std::clamp(box.offset[axis], begin, end);
    box.extent[axis] = std::clamp(box.end(axis), first, end) - first;
    box.offset[axis] = first - begin;
  }
  return {std::move(global), std::move(boxes)};
}

Layout Layout::with_axis(std::size_t axis, std::int64_t extent) const {
  const auto at = static_cast<std::ptrdiff_t>(axis);
  Shape global = global_;
  global.insert(global.begin() + at, extent);
  std::vector<Box> boxes = *boxes_;
  for (Box& box : boxes) {
    box.offset.insert(box.offset.begin() + at, 0);
    box.extent.insert(box.extent.begin() + at, extent);
  }
  return {std::move(global), std::move(boxes)};
}

Layout Layout::without_axis(std::size_t axis) const {
  const auto at = static_cast<std::ptrdiff_t>(axis);
  Shape global = global_;
  global.erase(global.begin() + at);
  std::vector<Box> boxes = *boxes_;
  for (Box& box : boxes) {
    expect(box.empty() || box.extent[axis] == global_[axis], "box {} has not all of axis {}",
           reelmesh::to_string(box), axis);
    if (box.empty()) box = empty_box(global_);
    box.offset.erase(box.offset.begin() + at);
    box.extent.erase(box.extent.begin() + at);
  }
  return {std::move(global), std::move(boxes)};
}

std::string to_string(const Layout& layout) {
  std::string text = reelmesh::to_string(layout.global()) + ":";
  for (int r = 0; r < layout.ranks(); ++r) text += fmt::format(" {}", to_string(layout.box(r)));
  return text;
}

}  // namespace reelmesh
