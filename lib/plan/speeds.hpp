#pragma once
// How even a layout is for ranks of given speeds.
#include <algorithm>
#include <vector>

#include "layout/layout.hpp"

namespace reelmesh {

/// How long the last rank works where a box takes cost(box) at speed 1. speeds: of the ranks of the
/// layout; empty: all 1.
template <class F>
double longest(const Layout& layout, const std::vector<double>& speeds, F&& cost) {
  double most = 0;
  for (int r = 0; r < layout.ranks(); ++r) {
    const double speed = speeds.empty() ? 1.0 : speeds.at(static_cast<std::size_t>(r));
    most = std::max(most, static_cast<double>(cost(layout.box(r))) / speed);
  }
  return most;
}

inline double longest(const Layout& layout, const std::vector<double>& speeds) {
  return longest(layout, speeds, [](const Box& box) { return box.numel(); });
}

}  // namespace reelmesh
