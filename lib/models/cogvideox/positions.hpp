#pragma once
// Where a token stands: the sin-cos table of 2b and the rotary tables of 5b and 1.5, for the tokens
// of one box of the grid [frame, row, column], so that they are the same on every layout.
#include "layout/layout.hpp"
#include "models/cogvideox/config.hpp"

namespace reelmesh {

/// Sinusoid of a timestep: float32 [1, channels], cosines first (diffusers' Timesteps).
Tensor timestep_embedding(std::int64_t timestep, const CogVideoXConfig& config);

/// float32 [token, channels]: of frame (a quarter of the channels), then column, then row (three
/// eighths each), sines first. (diffusers' get_3d_sincos_pos_embed)
Tensor sincos_positions(const CogVideoXConfig& config, const Box& grid);

/// float32 [token, head channel] each: of frame (a quarter), row and column (three eighths each),
/// every value twice. `grid` is the whole grid and `box` a part of it. Releases 1.0 stretch rows
/// and columns over a crop of the training grid, 1.5 counts them. (diffusers'
/// get_3d_rotary_pos_embed)
struct RotaryTables {
  Tensor cosines, sines;
};
RotaryTables rotary_positions(const CogVideoXConfig& config, const Shape& grid, const Box& box);

}  // namespace reelmesh
