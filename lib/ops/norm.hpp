#pragma once
// Normalisations, and sums over rows. Statistics are float32 (group norm: float64) with a fixed
// order of summation; the result is rounded once.
#include <vector>

#include "ops/exact_sum.hpp"
#include "ops/group_norm.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

// Gradients (tensor/tape.hpp) are recorded by the ops whose comments name them: norm_gradients.hpp.

/// weight·x/√(mean(x²) + eps) along the last axis. x: [..., channel]; weight: [channel]. (T5)
Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps);

/// (x − mean)/√(var + eps)·weight + bias along the last axis. x: [..., channel]; weight, bias:
/// [channel]. Gradients: of x [token, batch, channel], weight and bias.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps);

/// For each row of x and of `before`, tensors of one shape and floating type, the sums over its
/// elements of |x − before| and of |before| → float32 [row, 2]. Their order depends on the length
/// of a row alone.
Tensor change_sums(const Tensor& x, const Tensor& before);

/// The first tokens of a stream, if they use other chunks of a modulation table than the rest
/// (CogVideoX: text precedes video).
struct FirstTokens {
  std::int64_t count = 0;
  int chunks_later = 0;  ///< added to the index of each chunk
};

/// Which chunks of a modulation table to use: y = layer_norm(x)·(1 + scale) + shift.
struct Modulation {
  Tensor table;  ///< [batch or 1, chunks·channel], of x's type or float32
  int shift = 0;
  int scale = 0;
  FirstTokens first;
};

/// x: [token, batch, channel]; weight, bias: [channel]; written to `out` of x's shape and type.
/// Gradients: of x, unless `out` is x; of weight, bias and table.
void modulated_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                          const Modulation& modulation, Tensor& out);

/// x += gate·y in place; x, y: [token, batch, channel]; gate: index of a chunk of table [batch or
/// 1, chunks·channel], of x's type or float32. Gradients: of x, y and table.
void add_gated(Tensor& x, const Tensor& y, const Tensor& table, int gate,
               const FirstTokens& first = {});

/// The arguments of add_gated() besides the tensors.
struct Gate {
  Tensor table;
  int chunk = 0;
  FirstTokens first;
};

/// add_gated(x, y, gate), then modulated_layer_norm of x to `out`, which is not x: the bits of
/// these two calls, but on a GPU the new x is not read again. Gradients: theirs.
void add_gated_and_norm(Tensor& x, const Tensor& y, const Gate& gate, const Tensor& weight,
                        const Tensor& bias, float eps, const Modulation& modulation, Tensor& out);

/// QK norm and rotary embedding, in place on part 0 of x: [token, batch, part, head, channel].
/// Layer norm over the channels of each head (CogVideoX), or RMS norm if there is no bias
/// (Open-Sora); then rotation of adjacent channel pairs (Su et al. 2021) if tables are given.
/// weight, bias: float32 [channel]; cosines, sines: float32 [token − unrotated, channel] or empty.
/// The first `unrotated` tokens (text) are not rotated. Gradients: of x, weight and bias.
struct HeadNorm {
  Tensor weight, bias;
  float eps = 1e-6F;
};
void normalise_and_rotate(Tensor& x, const HeadNorm& norm, const Tensor& cosines,
                          const Tensor& sines, std::int64_t unrotated = 0);

/// RMS norm over all heads of a token together, then rotation of adjacent channel pairs of each
/// head if tables are given; rounded once, in place on part 0 of x: [token, batch, part, head,
/// channel]. weight: float32 [head · channel]; cosines, sines: float32 [token, channel] or empty.
/// Gradients: of x and weight. (Wan)
void norm_together_and_rotate(Tensor& x, const Tensor& weight, float eps, const Tensor& cosines,
                              const Tensor& sines);

/// Σx of every group, then Σx² of every group. x: [frame, row, column, channel]; rows and columns
/// are multiples of `cell`. Added as doubles within cells of cell × cell pixels over all frames;
/// cells are added exactly. So parts of an image cut at cell borders add up to the same sums.
std::vector<ExactSum> group_sums(const Tensor& x, std::int64_t groups, std::int64_t cell);

/// y = silu(((x − mean)·rstd·weight + bias)·scale + shift), the spatial norm of CogVideoX's
/// decoder. x: [frame, row, column, channel]; weight, bias: float32 [channel]; scale, shift:
/// [latent frame, latent row, latent column, channel] of x's type. Pixel (t, r, c) of x uses
/// element (latent_frame[t], r·latent rows/rows, c·latent columns/columns).
struct SpatialNorm {
  GroupStatistics statistics;
  Tensor weight, bias;
  Tensor scale, shift;
  std::vector<std::int64_t> latent_frame;
};
/// Writes to `out`, which has x's shape and type and may be x.
void spatial_norm_silu(const Tensor& x, const SpatialNorm& norm, Tensor& out);

}  // namespace reelmesh::ops
