#pragma once
// How a clip lies over the ranks that decode it.
#include "plan/workload.hpp"

namespace reelmesh {

/// Several groups of frames: they are divided among the ranks first, and their rows where that ends
/// earlier, with one row added to each part for what ranks that share a group exchange; ranks that
/// no part is left for stay idle, those of the smallest weight. A single group: rows are cut, and
/// columns where that ends earlier, as with more ranks than rows. Parts are in proportion to the
/// weights.
DecodeLayout decode_layout(const DecodeWorkload& workload, int ranks,
                           const RankWeights& weights = {});

}  // namespace reelmesh
