#include "layout/space_time.hpp"

namespace reelmesh {
namespace {

// Boxes [frame, row, column] in which columns are whole, as boxes [frame, token of the frame].
Layout flattened(const Layout& grid) {
  const Shape& global = grid.global();
  std::vector<Box> boxes;
  boxes.reserve(static_cast<std::size_t>(grid.ranks()));
  for (int r = 0; r < grid.ranks(); ++r) {
    const Box& box = grid.box(r);
    boxes.push_back(
        {{box.offset[0], box.offset[1] * global[2]}, {box.extent[0], box.extent[1] * global[2]}});
  }
  return {{global[0], global[1] * global[2]}, std::move(boxes)};
}

}  // namespace

SpaceTime::SpaceTime(const Shape& grid, int frame_parts, int parts_of_rows, std::int64_t heads,
                     const RankWeights& weights)
    : tokens(Layout::grid(grid, {frame_parts, parts_of_rows, 1}, weights)),
      spatial(flattened(tokens)),
      temporal(Layout::cut(spatial.global(), 1, tokens.ranks(), weights)),
      split_rows(parts_of_rows) {
  if (frames_are_whole()) return;
  const Shape global{spatial.global()[0], spatial.global()[1], heads};
  by_heads = {spatial.with_axis(2, heads),
              Layout::grid(global, {frame_parts, 1, parts_of_rows}, weights)};
}

SpaceTime SpaceTime::of(const DenoiseLayout& layout, std::int64_t heads) {
  const std::vector<int>& parts = layout.parts;
  expect(parts.size() == 3 && parts[2] == 1, "tokens {} where frames and rows are to be cut",
         to_string(layout.tokens));
  return {layout.tokens.global(), parts[0], parts[1], heads, layout.weights};
}

}  // namespace reelmesh
