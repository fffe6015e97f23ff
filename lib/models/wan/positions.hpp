#pragma once
// Position tables of the video tokens of one box of the grid [frame, row, column], and the sinusoid
// of a timestep. A token's values are the same in every layout. host: where the table is made; that
// of a dry run has a shape only.
#include "layout/layout.hpp"
#include "models/wan/config.hpp"

namespace reelmesh {

/// Float32 [1, features], cosines before sines (diffusers' Timesteps with flip_sin_to_cos).
Tensor wan_sinusoid(double timestep, std::int64_t features, Device host = {});

/// float32 [token, head channel] each; each value is repeated for a pair of adjacent channels. Of a
/// head's d channels 2·(d/6) encode the row, as many the column, and those before them the frame
/// (44, 42 and 42 of 128). Angles are computed in float64 (diffusers' WanRotaryPosEmbed).
struct WanRotaryTables {
  Tensor cosines, sines;
};
WanRotaryTables wan_rotary_tables(const WanConfig& config, const Box& box, Device host = {});

}  // namespace reelmesh
