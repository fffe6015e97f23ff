#pragma once
#include <gtest/gtest.h>

#include <random>

#include "layout/relayout.hpp"
#include "support/ranks.hpp"

namespace reelmesh::test {

/// This rank's part of a float32 array in which each element is its own global linear index, so
/// that a test detects any misplaced element.
inline Sharded numbered(const Layout& layout) {
  const auto world = test::world();
  const Box& box = layout.box(world.rank());
  Tensor whole = Tensor::empty(layout.global(), DType::float32);
  for (std::int64_t i = 0; i < whole.numel(); ++i) whole.data<float>()[i] = static_cast<float>(i);
  Tensor local = Tensor::empty(box.extent, DType::float32);
  copy_box(box, whole, whole_box(layout.global()), local, box);
  return {local, layout, world};
}

/// A partition into boxes of very different sizes, some empty, assigned to ranks at random. Ranks
/// that call with the same state of `random` get the same layout.
inline Layout random_partition(const Shape& global, int ranks, std::mt19937& random) {
  std::vector<int> parts(global.size(), 1);
  for (int rest = ranks, factor = 2; rest > 1;) {
    if (rest % factor != 0) {
      ++factor;
      continue;
    }
    parts[random() % parts.size()] *= factor;
    rest /= factor;
  }
  std::vector<double> speeds;
  for (int r = 0; r < ranks; ++r) {
    speeds.push_back(random() % 4 == 0 ? 0.01 : 1.0 + double(random() % 8));
  }
  const Layout grid = Layout::grid(global, parts, speeds);
  std::vector<Box> boxes;
  for (int r = 0; r < ranks; ++r) boxes.push_back(grid.box(r));
  std::shuffle(boxes.begin(), boxes.end(), random);
  return {global, boxes};
}

}  // namespace reelmesh::test
