#pragma once
// How tokens are cut for the ranks that work on them.
#include <functional>

#include "layout/layout.hpp"
#include "plan/request.hpp"

namespace reelmesh {

/// The maximum over ranks of cost(box) / weight; cost(box): time on a rank of weight 1.
double makespan(const Layout& layout, const RankWeights& weights,
                const std::function<double(const Box&)>& cost);
/// The same with the number of elements as the cost.
double makespan(const Layout& layout, const RankWeights& weights);

/// Layout of the video tokens [frame, row, column] over `ranks` ranks: rows cut, frames cut, or a
/// grid of two or three axes. Shard::automatic takes the layout with the smallest makespan; ties
/// are broken by the largest minimum box, then rows are preferred over grids, and grids over
/// recursive bisection (bisect.hpp). Boxes are proportional to the weights.
Layout token_layout(Shard shard, const Shape& grid, int ranks, const RankWeights& weights = {});

/// Layout of the text tokens over the ranks of `video`: each token goes to the rank with the
/// smallest (video + text tokens) / weight so far.
Layout text_layout(std::int64_t tokens, const Layout& video, const RankWeights& weights = {});

}  // namespace reelmesh
