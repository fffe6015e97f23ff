#pragma once
// How tokens are cut for the ranks that work on them.
#include <functional>

#include "layout/layout.hpp"
#include "plan/job.hpp"

namespace reelmesh {

/// Time until the last rank has finished where box(rank) takes cost(box) on a rank of weight 1.
double makespan(const Layout& layout, const RankWeights& weights,
                const std::function<double(const Box&)>& cost);
/// The same with the number of elements as the cost.
double makespan(const Layout& layout, const RankWeights& weights);

/// Layout of the video tokens [frame, row, column] over `ranks` ranks: rows cut, frames cut, or a
/// grid of two or three axes. Shard::automatic takes the layout with the smallest makespan, and of
/// equal ones that with the largest smallest box: rows before grids, and boxes from recursive
/// bisection (bisect.hpp) only where they are better. Boxes are proportional to the weights.
Layout token_layout(Shard shard, const Shape& grid, int ranks, const RankWeights& weights = {});

/// Layout of the text tokens over the ranks of `video`: one by one they go to the rank that is
/// finished first with them and with its video tokens.
Layout text_layout(std::int64_t tokens, const Layout& video, const RankWeights& weights = {});

}  // namespace reelmesh
