#pragma once
// Position embeddings: the sin-cos table of 2b and the rotary tables of 5b and 1.5, for the tokens
// of one box of the grid [frame, row, column]. A token's values are the same in every layout.
#include "layout/layout.hpp"
#include "models/cogvideox/config.hpp"

namespace reelmesh {

/// Sinusoidal embedding of a timestep: float32 [1, channels], cosines before sines if
/// flip_sin_to_cos, else after them (diffusers' Timesteps).
Tensor timestep_embedding(std::int64_t timestep, const CogVideoXConfig& config);

/// float32 [token, channels]: 1/4 of the channels encode the frame, then 3/8 the column and 3/8 the
/// row; in each, sines come before cosines. (diffusers' get_3d_sincos_pos_embed)
Tensor sincos_positions(const CogVideoXConfig& config, const Box& grid);

/// float32 [token, head channel] each: 1/4 of the channels encode the frame, then 3/8 the row and
/// 3/8 the column; each value is repeated for a pair of adjacent channels. `grid` is the whole grid
/// and `box` a part of it. CogVideoX 1.0 interpolates rows and columns over a crop of the training
/// grid; 1.5 uses their indices and throws Error(unavailable) for more rows or columns than the
/// training grid has. (diffusers' get_3d_rotary_pos_embed)
struct RotaryTables {
  Tensor cosines, sines;
};
RotaryTables rotary_positions(const CogVideoXConfig& config, const Shape& grid, const Box& box);

}  // namespace reelmesh
