#pragma once
// Normalisations. Statistics are float32 (group norm: float64) with a fixed order of summation; the
// result is rounded once.
#include <vector>

#include "ops/exact_sum.hpp"
#include "ops/group_norm.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// weight·x/√(mean(x²) + eps) along the last axis. x: [..., channel]; weight: [channel]. (T5)
Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps);

/// (x − mean)/√(var + eps)·weight + bias along the last axis.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps);

/// Which chunks of a modulation table to use: y = layer_norm(x)·(1 + scale) + shift.
struct Modulation {
  Tensor table;  ///< [batch or 1, chunks·channel], of x's type
  int shift = 0;
  int scale = 0;
};

/// x: [token, batch, channel], written to `out` of the same shape.
void modulated_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                          const Modulation& modulation, Tensor& out);

/// x += gate·y in place; x, y: [token, batch, channel]; gate: chunk of table [batch,
/// chunks·channel].
void add_gated(Tensor& x, const Tensor& y, const Tensor& table, int gate);

/// Layer norm over the channels of each head of q or of k, then rotation of adjacent pairs by angle
/// where tables are given, in place on part 0 of x: [token, batch, part, head, channel]. weight,
/// bias: float32 [channel]; without a bias nothing is subtracted either: a norm by the root mean
/// square (Open-Sora). cosines, sines: float32 [token, channel] or empty. (CogVideoX; Su et al.
/// 2021 for the rotation)
struct HeadNorm {
  Tensor weight, bias;
  float eps = 1e-6F;
};
void normalise_and_rotate(Tensor& x, const HeadNorm& norm, const Tensor& cosines,
                          const Tensor& sines);

/// Sums of x and x² of every group: `groups` sums, then as many of squares. x: [frame, row, column,
/// channel]. Added up as doubles within cells of cell × cell pixels of all frames, then exactly, so
/// that the parts of an image that is cut along cells give the sums of the whole.
std::vector<ExactSum> group_sums(const Tensor& x, std::int64_t groups, std::int64_t cell);

/// y = silu(((x − mean)·rstd·weight + bias)·scale + shift), the spatial norm of CogVideoX's
/// decoder. x: [frame, row, column, channel]; weight, bias: float32
/// [channel]; scale, shift: [latent frame, latent row, latent column, channel] of x's type: element
/// (t, r, c) is read at (frame_of[t], r·rows/x.rows, c·columns/x.columns).
struct SpatialNorm {
  GroupStatistics statistics;
  Tensor weight, bias;
  Tensor scale, shift;
  std::vector<std::int64_t> frame_of;
};
/// Written to `out`, of x's shape and type; it may be x.
void spatial_norm_silu(const Tensor& x, const SpatialNorm& norm, Tensor& out);

}  // namespace reelmesh::ops
