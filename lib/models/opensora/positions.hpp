#pragma once
// Position embeddings for the tokens of one box. A token's values are the same in every layout.
// Tables in checkpoints are for one size; these are computed for the requested size. host: where
// the table is made; that of a dry run has a shape only.
#include "layout/layout.hpp"
#include "models/opensora/config.hpp"

namespace reelmesh {

inline constexpr std::int64_t number_channels = 256;
/// Sinusoidal embedding of a number (timestep, frames per second): float32 [1, number_channels],
/// cosines before sines. (Open-Sora's TimestepEmbedder)
Tensor number_embedding(double number, Device host = {});

/// Table of positions within a frame: float32 [row, column, channels] for the rows and columns of
/// `box`. The first half of the channels encodes the column, the second half the row; in each,
/// sines come before cosines. grid: [frame, row, column]; box: a part of it. v1 divides positions
/// by space_scale (get_2d_sincos_pos_embed). v3 scales them by input_sq_size / √(height·width) and
/// by the aspect ratio (PositionEmbedding2D); height, width: of the video in pixels.
Tensor spatial_positions(const STDiTConfig& config, const Shape& grid, const Box& box,
                         std::int64_t height, std::int64_t width, Device host = {});

/// v1's table of frames, divided by time_scale: float32 [frame, channels], sines before cosines
/// (get_1d_sincos_pos_embed).
Tensor time_positions(const STDiTConfig& config, std::int64_t frames, Device host = {});

/// v3's rotary tables of frames: float32 [frame, head channel]; each value is repeated for a pair
/// of adjacent channels. frequencies: float32 [head channels / 2], radians per frame, from the
/// checkpoint (rope.freqs); where they are, the tables are made.
struct TemporalRotaryTables {
  Tensor cosines, sines;
};
TemporalRotaryTables temporal_rotary_tables(const Tensor& frequencies, std::int64_t frames);

}  // namespace reelmesh
