#pragma once
// Where a token stands, for the tokens of one box, so that it is the same on every layout. Stored
// tables are for one size; these are for the size that is asked for.
#include "layout/layout.hpp"
#include "models/opensora/config.hpp"

namespace reelmesh {

/// Sinusoid of a number (timestep, frames per second): float32 [1, 256], cosines first.
/// (Open-Sora's TimestepEmbedder)
Tensor number_embedding(double number);

/// Table of positions within a frame: float32 [row, column, channels] for rows and columns of
/// `box`, half of the channels by column, half by row, each sines first. grid: [frame, row,
/// column], box: a part of it. v1 stretches positions by space_scale (get_2d_sincos_pos_embed); v3
/// by the size of the picture against input_sq_size and by its shape (PositionEmbedding2D): height
/// and width are its pixels.
Tensor spatial_positions(const STDiTConfig& config, const Shape& grid, const Box& box,
                         std::int64_t height, std::int64_t width);

/// v1's table of times: float32 [frame, channels], sines first (get_1d_sincos_pos_embed).
Tensor time_positions(const STDiTConfig& config, std::int64_t frames);

/// v3's rotary tables of times: float32 [frame, channels of a head], every value twice.
/// frequencies: float32 [half of these channels], radians a frame, as the checkpoint has them.
struct TimeRotation {
  Tensor cosines, sines;
};
TimeRotation time_rotation(const Tensor& frequencies, std::int64_t frames);

}  // namespace reelmesh
