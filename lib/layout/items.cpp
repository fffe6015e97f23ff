#include "layout/items.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "layout/relayout.hpp"

namespace reelmesh {

namespace {

// Of the ranks; empty: equal.
using Speeds = std::vector<double>;

// The `count` fastest ranks in their order; of equal ones the first.
std::vector<std::size_t> fastest(int ranks, const Speeds& speeds, int count) {
  std::vector<std::size_t> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  if (!speeds.empty()) {
    std::ranges::stable_sort(order, std::greater(), [&](std::size_t r) { return speeds.at(r); });
  }
  order.resize(static_cast<std::size_t>(count));
  std::ranges::sort(order);
  return order;
}

// [item, row] of the ranks that the cut needs.
Layout cut_layout(std::int64_t items, std::int64_t rows, const ItemCut& cut, const Speeds& speeds,
                  const std::vector<std::size_t>& ranks) {
  Speeds theirs;
  for (const std::size_t r : ranks) {
    if (!speeds.empty()) theirs.push_back(speeds.at(r));
  }
  return Layout::grid({items, rows}, {cut.items, cut.rows}, theirs);
}

}  // namespace

ItemCut cut_items(std::int64_t items, std::int64_t rows, int ranks, const Speeds& speeds) {
  ItemCut best;
  double least = std::numeric_limits<double>::infinity();
  for (int by_rows = 1; by_rows <= std::min<std::int64_t>(ranks, rows); ++by_rows) {
    const ItemCut cut{static_cast<int>(std::min<std::int64_t>(ranks / by_rows, items)), by_rows};
    const auto used = fastest(ranks, speeds, cut.items * cut.rows);
    const Layout layout = cut_layout(items, rows, cut, speeds, used);
    double longest = 0;
    for (int r = 0; r < layout.ranks(); ++r) {
      const Box& box = layout.box(r);
      if (box.empty()) continue;
      const auto work =
          static_cast<double>(box.extent[0] * (box.extent[1] + (by_rows > 1 ? 1 : 0)));
      const double speed = speeds.empty() ? 1 : speeds.at(used.at(static_cast<std::size_t>(r)));
      longest = std::max(longest, work / speed);
    }
    if (longest < least) {
      least = longest;
      best = cut;
    }
  }
  return best;
}

Layout item_layout(const Shape& frames_rows_columns, std::int64_t size, int ranks,
                   const Speeds& speeds) {
  const std::int64_t frames = frames_rows_columns.at(0), rows = frames_rows_columns.at(1);
  const std::int64_t items = (frames + size - 1) / size;
  const ItemCut cut = cut_items(items, rows, ranks, speeds);
  const auto used = fastest(ranks, speeds, cut.items * cut.rows);
  const Layout by_item = cut_layout(items, rows, cut, speeds, used);
  std::vector<Box> boxes(static_cast<std::size_t>(ranks), Box{{0, 0, 0}, {0, 0, 0}});
  for (int r = 0; r < by_item.ranks(); ++r) {
    const Box& box = by_item.box(r);
    const std::int64_t first = std::min(frames, box.offset[0] * size);
    const std::int64_t end = std::min(frames, box.end(0) * size);
    boxes.at(used.at(static_cast<std::size_t>(r))) = {
        {first, box.offset[1], 0}, {end - first, box.extent[1], frames_rows_columns.at(2)}};
  }
  return {frames_rows_columns, std::move(boxes)};
}

Layout pixels_of_own_items(const Layout& x, const comm::Group& group) {
  const Box& mine = own_box(x, group);
  std::vector<Box> boxes;
  for (int r = 0; r < x.ranks(); ++r) {
    const Box& box = x.box(r);
    const bool together = !box.empty() && box.offset[0] == mine.offset[0];
    boxes.push_back(together ? Box{{box.offset[1], box.offset[2]}, {box.extent[1], box.extent[2]}}
                             : Box{{0, 0}, {0, 0}});
  }
  return {{x.global()[1], x.global()[2]}, std::move(boxes)};
}

void add_up(const comm::Group& group, const Layout& layout, std::span<ops::ExactSum> sums) {
  // One line of bytes from each of these ranks to all of them.
  const auto bytes = static_cast<std::int64_t>(sums.size_bytes());
  std::int64_t holders = 0;
  std::vector<Box> from;
  for (int r = 0; r < layout.ranks(); ++r) {
    const bool holds = !layout.box(r).empty();
    from.push_back(holds ? Box{{holders, 0}, {1, bytes}} : Box{{0, 0}, {0, 0}});
    holders += holds ? 1 : 0;
  }
  if (holders <= 1 || own_box(layout, group).empty()) return;
  const Layout lines({holders, bytes}, std::move(from));
  const Tensor mine = Tensor::wrap(sums.data(), {1, bytes}, DType::uint8, nullptr);
  const Sharded all = relayout({mine, lines, group}, lines.grown(0, holders));
  std::fill(sums.begin(), sums.end(), ops::ExactSum{});
  for (std::int64_t line = 0; line < holders; ++line) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      ops::ExactSum sum;
      std::memcpy(&sum, all.local.rows(line, 1).data<std::uint8_t>() + i * sizeof sum, sizeof sum);
      sums[i].add(sum);
    }
  }
}

}  // namespace reelmesh
