#include "layout/items.hpp"

#include <algorithm>
#include <cstring>

#include "layout/relayout.hpp"

namespace reelmesh {

ItemCut cut_items(std::int64_t items, std::int64_t rows, int ranks) {
  const auto largest = [](std::int64_t n, std::int64_t parts) { return (n + parts - 1) / parts; };
  ItemCut best;
  std::int64_t least = -1;
  for (int by_rows = 1; by_rows <= std::min<std::int64_t>(ranks, rows); ++by_rows) {
    const auto by_items = static_cast<int>(std::min<std::int64_t>(ranks / by_rows, items));
    const std::int64_t work =
        largest(items, by_items) * (largest(rows, by_rows) + (by_rows > 1 ? 1 : 0));
    if (least < 0 || work < least) {
      least = work;
      best = {by_items, by_rows};
    }
  }
  return best;
}

Layout item_layout(const Shape& frames_rows_columns, std::int64_t size, int ranks) {
  const std::int64_t frames = frames_rows_columns.at(0);
  const std::int64_t items = (frames + size - 1) / size;
  const ItemCut cut = cut_items(items, frames_rows_columns.at(1), ranks);
  const Layout by_item = Layout::grid({items, frames_rows_columns.at(1), frames_rows_columns.at(2)},
                                      {cut.items, cut.rows, 1})
                             .embed(0, ranks)
                             .scaled(0, size);
  std::vector<Box> boxes;
  for (int r = 0; r < ranks; ++r) {
    Box box = by_item.box(r);
    box.extent[0] = std::min(box.extent[0], frames - box.offset[0]);
    boxes.push_back(std::move(box));
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
