#include "layout/layout.hpp"

#include <algorithm>
#include <cmath>

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

std::vector<std::int64_t> cut_by_speed(std::int64_t extent, const std::vector<double>& speeds) {
  double all = 0;
  for (const double speed : speeds) {
    expect(speed > 0 && std::isfinite(speed), "a speed of {}", speed);
    all += speed;
  }
  // No part is less than its exact share rounded down; one less, for the rounding of that.
  std::vector<std::int64_t> parts;
  std::int64_t rest = extent;
  for (const double speed : speeds) {
    const double share = std::floor(static_cast<double>(extent) * (speed / all)) - 1;
    parts.push_back(std::max<std::int64_t>(0, static_cast<std::int64_t>(share)));
    rest -= parts.back();
  }
  // What is left goes, one by one, where it will be done first.
  for (; rest > 0; --rest) {
    std::size_t best = 0;
    const auto done = [&](std::size_t i) { return static_cast<double>(parts[i] + 1) / speeds[i]; };
    for (std::size_t i = 1; i < parts.size(); ++i) {
      if (done(i) < done(best)) best = i;
    }
    ++parts[best];
  }
  std::vector<std::int64_t> offsets{0};
  for (const std::int64_t part : parts) offsets.push_back(offsets.back() + part);
  return offsets;
}

Layout::Layout(Shape global, std::vector<Box> boxes)
    : global_(std::move(global)), boxes_(std::move(boxes)) {
  const Box whole = whole_box(global_);
  for (const Box& box : boxes_) {
    expect(box.offset.size() == global_.size() && box.extent.size() == global_.size(),
           "a box of rank {} in a layout of {}", box.offset.size(), reelmesh::to_string(global_));
    expect(box.empty() || whole.contains(box), "box {} is not inside {}", to_string(box),
           reelmesh::to_string(global_));
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

Layout Layout::cut(Shape global, std::size_t axis, int ranks, const std::vector<double>& speeds) {
  std::vector<int> parts(global.size(), 1);
  parts.at(axis) = ranks;
  return grid(std::move(global), parts, speeds);
}

Layout Layout::grid(Shape global, const std::vector<int>& parts,
                    const std::vector<double>& speeds) {
  expect(parts.size() == global.size(), "{} cuts for {} axes", parts.size(), global.size());
  std::size_t ranks = 1;
  for (std::size_t axis = 0; axis < parts.size(); ++axis) {
    expect(parts[axis] > 0, "axis {} is cut into {} parts", axis, parts[axis]);
    ranks *= static_cast<std::size_t>(parts[axis]);
  }
  const std::vector<double> of_ranks = speeds.empty() ? std::vector<double>(ranks, 1.0) : speeds;
  expect(of_ranks.size() == ranks, "{} speeds for {} ranks", of_ranks.size(), ranks);
  std::vector<Box> boxes{empty_box(global)};
  std::size_t together = ranks;  // ranks that share a box so far
  for (std::size_t axis = 0; axis < parts.size(); ++axis) {
    const auto count = static_cast<std::size_t>(parts[axis]);
    together /= count;
    std::vector<Box> finer;
    for (const Box& box : boxes) {
      std::vector<double> sums(count, 0.0);
      const std::size_t first = finer.size() * together;
      for (std::size_t i = 0; i < count * together; ++i) {
        sums[i / together] += of_ranks[first + i];
      }
      const std::vector<std::int64_t> offsets = cut_by_speed(global[axis], sums);
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

bool Layout::is_partition() const {
  std::int64_t held = 0;
  for (std::size_t r = 0; r < boxes_.size(); ++r) {
    held += boxes_[r].numel();
    for (std::size_t s = 0; s < r; ++s) {
      if (!intersect(boxes_[r], boxes_[s]).empty()) return false;
    }
  }
  return held == numel(global_);
}

bool Layout::is_replicated() const {
  const Box whole = whole_box(global_);
  bool held = false;
  for (const Box& box : boxes_) {
    if (box.empty()) continue;
    if (box != whole) return false;
    held = true;
  }
  return held;
}

Layout Layout::embed(int first, int ranks) const {
  expect(first >= 0 && first + this->ranks() <= ranks, "{} ranks at {} do not fit {}",
         this->ranks(), first, ranks);
  std::vector<Box> boxes(static_cast<std::size_t>(ranks), empty_box(global_));
  std::copy(boxes_.begin(), boxes_.end(), boxes.begin() + first);
  return {global_, std::move(boxes)};
}

Layout Layout::part(int first, int count) const {
  expect(first >= 0 && count >= 0 && first + count <= ranks(), "ranks {}..{} of a layout of {}",
         first, first + count, ranks());
  return {global_, std::vector<Box>(boxes_.begin() + first, boxes_.begin() + first + count)};
}

Layout Layout::scaled(std::size_t axis, std::int64_t factor) const {
  Layout result = *this;
  result.global_.at(axis) *= factor;
  for (Box& box : result.boxes_) {
    box.offset[axis] *= factor;
    box.extent[axis] *= factor;
  }
  return result;
}

Layout Layout::grown(std::size_t axis, std::int64_t width) const {
  Layout result = *this;
  for (Box& box : result.boxes_) {
    if (box.empty()) continue;
    const std::int64_t begin = std::max<std::int64_t>(0, box.offset[axis] - width);
    const std::int64_t end = std::min(global_.at(axis), box.end(axis) + width);
    box.offset[axis] = begin;
    box.extent[axis] = end - begin;
  }
  return result;
}

Layout Layout::without_front(std::size_t axis, std::int64_t count) const {
  Layout result = *this;
  result.global_.at(axis) -= count;
  for (Box& box : result.boxes_) {
    const std::int64_t end = std::max<std::int64_t>(0, box.end(axis) - count);
    box.offset[axis] = std::max<std::int64_t>(0, box.offset[axis] - count);
    box.extent[axis] = end - std::min(end, box.offset[axis]);
  }
  return result;
}

Layout Layout::with_axis(std::size_t axis, std::int64_t extent) const {
  Layout result = *this;
  const auto at = static_cast<std::ptrdiff_t>(axis);
  result.global_.insert(result.global_.begin() + at, extent);
  for (Box& box : result.boxes_) {
    box.offset.insert(box.offset.begin() + at, 0);
    box.extent.insert(box.extent.begin() + at, extent);
  }
  return result;
}

std::string to_string(const Layout& layout) {
  std::string text = reelmesh::to_string(layout.global()) + ":";
  for (int r = 0; r < layout.ranks(); ++r) text += fmt::format(" {}", to_string(layout.box(r)));
  return text;
}

}  // namespace reelmesh
