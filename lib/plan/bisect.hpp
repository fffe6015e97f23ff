#pragma once
#include "layout/layout.hpp"

namespace reelmesh {

/// A partition of `grid` into a box a rank, by cutting boxes in two again and again: as even as
/// cuts across whole boxes allow for any number of ranks, primes as well. Of all cuts the one whose
/// largest box is the smallest is taken, then the one whose smallest is the largest; more than 16
/// ranks are halved first. Neighbours in rank are neighbours in the grid.
Layout bisected(const Shape& grid, int ranks);

/// The same in proportion to the weights of the ranks, one after the other halved; not searched.
Layout bisected_by_weight(const Shape& grid, const RankWeights& weights);

}  // namespace reelmesh
