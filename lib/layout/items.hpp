#pragma once
// Many images, or groups of frames, over a group of ranks: each rank works on some of them, alone
// or with others that have other rows of the same ones.
#include <span>

#include "layout/sharded.hpp"
#include "ops/exact_sum.hpp"

namespace reelmesh {

/// How `items` images (or groups of frames), each `rows` rows high, are cut for `ranks` ranks: into
/// parts of items, and each part by rows. The cut whose last rank is done first, where a cut by
/// rows counts as one row more, for what it exchanges; so items come first. Parts are proportional
/// to the speeds of the ranks, where these are given. Ranks that a cut leaves over stay idle, the
/// slowest ones.
struct ItemCut {
  int items = 1, rows = 1;
};
ItemCut cut_items(std::int64_t items, std::int64_t rows, int ranks,
                  const std::vector<double>& speeds = {});

/// The layout [frame, row, column] of that cut, where an item is `size` frames (the last one may
/// have fewer): boxes have whole items and columns.
Layout item_layout(const Shape& frames_rows_columns, std::int64_t size, int ranks,
                   const std::vector<double>& speeds = {});

/// Who works on the same items as this rank: [row, column] with the boxes of the ranks whose frames
/// begin at the same one, and none for the others. x: [frame, row, column, …].
Layout pixels_of_own_items(const Layout& x, const comm::Group& group);

/// Each sum over the ranks that hold something of the layout, on all of them. Collective over
/// those.
void add_up(const comm::Group& group, const Layout& layout, std::span<ops::ExactSum> sums);

}  // namespace reelmesh
