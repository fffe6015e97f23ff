#include "layout/space_time.hpp"

namespace reelmesh {
namespace {

// Boxes of whole columns in [frame, row, column] are boxes in [frame, place].
Layout flattened(const Layout& grid) {
  const Shape& global = grid.global();
  std::vector<Box> boxes;
  for (int r = 0; r < grid.ranks(); ++r) {
    const Box& box = grid.box(r);
    boxes.push_back(
        {{box.offset[0], box.offset[1] * global[2]}, {box.extent[0], box.extent[1] * global[2]}});
  }
  return {{global[0], global[1] * global[2]}, std::move(boxes)};
}

}  // namespace

SpaceTime::SpaceTime(const Shape& tokens, int frame_parts, int parts_of_rows,
                     const std::vector<double>& of_ranks)
    : grid(Layout::grid(tokens, {frame_parts, parts_of_rows, 1}, of_ranks)),
      frames(flattened(grid)),
      places(Layout::cut(frames.global(), 1, grid.ranks(), of_ranks)),
      row_parts(parts_of_rows),
      speeds(of_ranks) {}

Layout SpaceTime::heads(std::int64_t count) const {
  const Shape global{frames.global()[0], frames.global()[1], count};
  return Layout::grid(global, {grid.ranks() / row_parts, 1, row_parts}, speeds);
}

Layout SpaceTime::frames_with_heads(std::int64_t count) const { return frames.with_axis(2, count); }

}  // namespace reelmesh
