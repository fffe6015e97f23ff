#pragma once
// Random shapes, meshes and cuts, the same on all ranks for the same seed.
#include <algorithm>
#include <random>

#include "layout/layout.hpp"

namespace reelmesh::test {

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  /// From `min` to `max`, inclusive.
  std::int64_t roll(std::int64_t min, std::int64_t max) {
    return min + std::int64_t(random_() % std::uint64_t(max - min + 1));
  }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[std::size_t(roll(0, std::int64_t(values.size()) - 1))];
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    std::shuffle(values.begin(), values.end(), random_);
  }

 private:
  std::mt19937 random_;
};

inline std::vector<int> divisors(int n) {
  std::vector<int> found;
  for (int i = 1; i <= n; ++i) {
    if (n % i == 0) found.push_back(i);
  }
  return found;
}

/// Splits random boxes in two until there is one per rank (some may be empty), in random order.
inline Layout random_partition(Dice& dice, const Shape& global, int ranks) {
  std::vector<Box> boxes{whole_box(global)};
  while (int(boxes.size()) < ranks) {
    Box a = dice.one_of(boxes), b = a;
    auto it = std::find(boxes.begin(), boxes.end(), a);
    const auto axis = std::size_t(dice.roll(0, std::int64_t(global.size()) - 1));
    a.extent[axis] = dice.roll(0, a.extent[axis]);
    b.offset[axis] += a.extent[axis];
    b.extent[axis] -= a.extent[axis];
    *it = a;
    boxes.push_back(b);
  }
  dice.shuffle(boxes);
  return {global, boxes};
}

}  // namespace reelmesh::test
