#include "plan/decode.hpp"

#include "plan/speeds.hpp"

namespace reelmesh {

Layout decode_layout(std::int64_t rows, std::int64_t columns, int ranks,
                     const std::vector<double>& speeds) {
  // Most of the work is at full size, where a tile of the convolutions is 4 latents wide.
  const auto work = [](const Box& box) {
    constexpr std::int64_t wide = 4;
    return box.empty() ? 0
                       : box.extent[0] * ((box.end(1) + wide - 1) / wide - box.offset[1] / wide);
  };
  const Shape latents{rows, columns};
  Layout best = Layout::grid(latents, {ranks, 1}, speeds);
  for (int across = 2; across <= ranks; ++across) {
    if (ranks % across != 0) continue;
    const Layout candidate = Layout::grid(latents, {ranks / across, across}, speeds);
    const auto times = [&](const Layout& layout) {  // memory decides where time does not
      return std::pair(longest(layout, speeds, work), longest(layout, speeds));
    };
    if (times(candidate) < times(best)) best = candidate;
  }
  return best;
}

}  // namespace reelmesh
