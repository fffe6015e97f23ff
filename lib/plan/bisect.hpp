#pragma once
#include "layout/layout.hpp"

namespace reelmesh {

/// A partition of `grid` (three axes) into one box per rank by recursive bisection, for any number
/// of ranks, primes included. Minimises the largest box, then maximises the smallest one. For up to
/// 16 ranks all bisections are searched; more ranks are halved first. Consecutive ranks are
/// neighbours in the grid.
Layout bisected(const Shape& grid, int ranks);

/// Recursive bisection that always halves the ranks and cuts in proportion to their weights;
/// chooses the best axis of each cut, without further search.
Layout bisected_by_weight(const Shape& grid, const RankWeights& weights);

}  // namespace reelmesh
