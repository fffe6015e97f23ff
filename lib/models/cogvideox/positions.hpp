#pragma once
// Position embeddings: the sin-cos table of 2b, the rotary tables of 5b and 1.5, and the learned
// table of 5b-I2V, for the tokens of one box of the grid [frame, row, column]. A token's values are
// the same in every layout. host: where the table is made; that of a dry run has a shape only.
#include "layout/layout.hpp"
#include "models/cogvideox/config.hpp"

namespace reelmesh {

/// Sinusoidal embedding of a timestep or of the offset `ofs`: float32 [1, channels], cosines before
/// sines if flip_sin_to_cos, else after them (diffusers' Timesteps).
Tensor timestep_embedding(std::int64_t timestep, std::int64_t channels,
                          const CogVideoXConfig& config, Device host = {});

/// float32 [token, channels]: 1/4 of the channels encode the frame, then 3/8 the column and 3/8 the
/// row; in each, sines come before cosines. (diffusers' get_3d_sincos_pos_embed)
Tensor sincos_positions(const CogVideoXConfig& config, const Box& grid, Device host = {});

/// Rows of the table of learned positions, [token, channels] of `dtype` on weights.device(): those
/// of the text tokens in `text`, [token], then of the video tokens in `video`. Error(internal) for
/// a box beyond the tokens of the checkpoint's own size. Errors as Checkpoint::load.
Tensor learned_positions(const Checkpoint& weights, const CogVideoXConfig& config, const Box& text,
                         const Box& video, DType dtype);

/// float32 [token, head channel] each: 1/4 of the channels encode the frame, then 3/8 the row and
/// 3/8 the column; each value is repeated for a pair of adjacent channels. `grid` is the whole grid
/// and `box` a part of it. CogVideoX 1.0 interpolates rows and columns over a crop of the training
/// grid; 1.5 uses their indices and throws Error(unavailable) for more rows or columns than the
/// training grid has. (diffusers' get_3d_rotary_pos_embed)
struct RotaryTables {
  Tensor cosines, sines;
};
RotaryTables rotary_positions(const CogVideoXConfig& config, const Shape& grid, const Box& box,
                              Device host = {});

}  // namespace reelmesh
