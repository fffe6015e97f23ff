#pragma once
// How a clip of a model with spatial and temporal attention in turn lies over a denoising group,
// and what moves in a pair of the two.
#include "layout/relayout.hpp"
#include "layout/space_time.hpp"
#include "plan/plan.hpp"

namespace reelmesh {

/// Frames cut as long as there are as many as ranks; with more ranks the grid of frames × rows
/// whose last rank is done first. `shard` asks for one of these: rows only, frames only, or a grid.
/// Boxes are proportional to `speeds` where these are given.
SpaceTime space_time_layout(Shard shard, const Shape& tokens, int ranks,
                            const std::vector<double>& speeds = {});

/// The sizes that decide on what is sent.
struct SpaceTimeSizes {
  std::int64_t layers = 1;  ///< pairs of spatial and temporal attention
  std::int64_t channels = 1, heads = 1;
  std::int64_t branches = 2;  ///< of guidance
  std::int64_t element_bytes = 4;
};

/// One relayout of every pair.
struct NamedMove {
  const char* name;
  Move move;
  std::int64_t values = 1;  ///< numbers that go with an element of the layouts
  std::int64_t sent_bytes(int rank, const SpaceTimeSizes& sizes) const;
};
/// Two where frames are whole: frames → places and back. More where the ranks of a frame share its
/// heads: queries, keys and values to heads, and what came of them back.
std::vector<NamedMove> relayouts(const SpaceTime& layouts, const SpaceTimeSizes& sizes);

/// Several lines for people: roles, device map, boxes, and bytes sent in a step.
std::string describe(const Plan& plan, const SpaceTime& layouts, const SpaceTimeSizes& sizes);

}  // namespace reelmesh
