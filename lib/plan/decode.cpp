#include "plan/decode.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "plan/tokens.hpp"

namespace reelmesh {
namespace {

// The `count` ranks with the largest weights, in rank order; lower ranks first among equal weights.
std::vector<int> fastest(int ranks, const RankWeights& weights, int count) {
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  if (!weights.empty()) {
    std::ranges::stable_sort(order, std::greater(),
                             [&](int rank) { return weights.at(static_cast<std::size_t>(rank)); });
  }
  order.resize(static_cast<std::size_t>(count));
  std::ranges::sort(order);
  return order;
}

RankWeights selected_weights(const std::vector<int>& ranks, const RankWeights& weights) {
  RankWeights some;
  for (const int rank : ranks) {
    if (!weights.empty()) some.push_back(weights.at(static_cast<std::size_t>(rank)));
  }
  return some;
}

// Layout [group, row, column] of several groups of frames; columns are whole.
Layout layout_of_groups(std::int64_t groups, std::int64_t rows, std::int64_t columns, int ranks,
                        const RankWeights& weights) {
  const Shape global{groups, rows, columns};
  std::vector<int> best;  // parts along each axis
  double earliest = std::numeric_limits<double>::infinity();
  for (int by_rows = 1; by_rows <= std::min<std::int64_t>(ranks, rows); ++by_rows) {
    const int by_groups = static_cast<int>(std::min<std::int64_t>(ranks / by_rows, groups));
    const std::vector<int> parts{by_groups, by_rows, 1};
    const RankWeights used =
        selected_weights(fastest(ranks, weights, by_groups * by_rows), weights);
    const double end = makespan(Layout::grid(global, parts, used), used, [&](const Box& box) {
      const std::int64_t halo = by_rows > 1 && !box.empty() ? 1 : 0;
      return static_cast<double>(box.extent[0] * (box.extent[1] + halo));
    });
    if (end < earliest) {
      earliest = end;
      best = parts;
    }
  }
  const std::vector<int> used = fastest(ranks, weights, best[0] * best[1]);
  const Layout of_used = Layout::grid(global, best, selected_weights(used, weights));
  std::vector<Box> boxes(static_cast<std::size_t>(ranks), Box{{0, 0, 0}, {0, 0, 0}});
  for (int r = 0; r < of_used.ranks(); ++r) {
    boxes[static_cast<std::size_t>(used[static_cast<std::size_t>(r)])] = of_used.box(r);
  }
  return {global, std::move(boxes)};
}

// Layout [group, row, column] of a single group.
Layout layout_of_rectangles(std::int64_t rows, std::int64_t columns, int ranks,
                            const RankWeights& weights) {
  // Most of the work is in convolutions at full resolution, whose tiles are 4 latents wide.
  const auto work = [](const Box& box) {
    constexpr std::int64_t tile = 4;
    const std::int64_t tiles = (box.end(2) + tile - 1) / tile - box.offset[2] / tile;
    return box.empty() ? 0.0 : static_cast<double>(box.extent[1] * tiles);
  };
  const auto times = [&](const Layout& layout) {  // ties are broken by the largest box (memory)
    return std::pair(makespan(layout, weights, work), makespan(layout, weights));
  };
  const Shape global{1, rows, columns};
  Layout best = Layout::grid(global, {1, ranks, 1}, weights);
  for (int across = 2; across <= ranks; ++across) {
    if (ranks % across != 0) continue;
    const Layout candidate = Layout::grid(global, {1, ranks / across, across}, weights);
    if (times(candidate) < times(best)) best = candidate;
  }
  return best;
}

Layout latent_layout(std::int64_t groups, std::int64_t rows, std::int64_t columns, int ranks,
                     const RankWeights& weights) {
  return groups == 1 ? layout_of_rectangles(rows, columns, ranks, weights)
                     : layout_of_groups(groups, rows, columns, ranks, weights);
}

}  // namespace

DecodeLayout decode_layout(const DecodeWorkload& w, int ranks, const RankWeights& weights) {
  const std::int64_t rows = w.latents.at(1), columns = w.latents.at(2);
  const std::int64_t groups = (w.latents[0] + w.group_latents - 1) / w.group_latents;
  const Layout cut = latent_layout(groups, rows, columns, ranks, weights);
  const Layout frames = cut.scaled(0, w.group_frames).cropped(0, 0, w.frames);
  return {cut.scaled(0, w.group_latents).cropped(0, 0, w.latents[0]), frames,
          w.single_images ? latent_layout(w.frames, rows, columns, ranks, weights) : frames};
}

}  // namespace reelmesh
