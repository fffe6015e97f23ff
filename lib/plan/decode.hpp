#pragma once
// The layout of a clip over the ranks that decode it.
#include "plan/workload.hpp"

namespace reelmesh {

/// The layout with the smallest makespan; parts are in proportion to the weights.
/// Several groups of frames: a grid of groups × rows; each part of cut rows is charged one halo
/// row, and ties go to fewer row cuts. Ranks left over, those with the smallest weights, stay idle.
/// A single group: a grid of rows × columns; ties go to fewer column cuts.
DecodeLayout decode_layout(const DecodeWorkload& workload, int ranks,
                           const RankWeights& weights = {});

}  // namespace reelmesh
