#pragma once
// The ops on a CUDA device. Each implements the function of the same name in lib/ops, which calls
// it if the first tensor is on a GPU. All tensors must be on the same device.
#include <memory>
#include <span>
#include <vector>

#include "ops/attention_backward.hpp"
#include "ops/attention_work.hpp"
#include "ops/norm.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh::gpu {

using ops::DropoutMask;
using ops::ExactSum;
using ops::FirstTokens;
using ops::Gate;
using ops::GroupStatistics;
using ops::HeadNorm;
using ops::Modulation;
using ops::Patch;
using ops::SpatialNorm;

void add(Tensor& x, const Tensor& y);
Tensor multiply(const Tensor& x, const Tensor& y);
void average(const Tensor& x, const Tensor& y, Tensor& out);
Tensor silu(const Tensor& x);
Tensor gelu(const Tensor& x);
Tensor scaled(const Tensor& x, float factor);
Tensor dropped(const Tensor& x, const DropoutMask& mask, const Tensor& rows,
               std::int64_t first_column);
void add_table(Tensor& x, const Tensor& table);
void repeat_for_batch(const Tensor& x, Tensor& out);
Tensor join_batches(std::span<const Tensor> parts);
Tensor patchify(const Tensor& latents, const Patch& patch, DType dtype);
Tensor unpatchify(const Tensor& tokens, std::int64_t batch_item, const Patch& patch,
                  const Shape& extents);
Tensor channels_to_frames(const Tensor& x);
Tensor to_pixels(const Tensor& x);
void flag_non_finite(const Tensor& x, Tensor& flag);

Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps);
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps);
Tensor change_sums(const Tensor& x, const Tensor& before);
void modulated_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                          const Modulation& modulation, Tensor& out);
void add_gated(Tensor& x, const Tensor& y, const Tensor& table, int gate, const FirstTokens& first);
void add_gated_and_norm(Tensor& x, const Tensor& y, const Gate& gate, const Tensor& weight,
                        const Tensor& bias, float eps, const Modulation& modulation, Tensor& out);
void normalise_and_rotate(Tensor& x, const HeadNorm& norm, const Tensor& cosines,
                          const Tensor& sines, std::int64_t unrotated);
void norm_together_and_rotate(Tensor& x, const Tensor& weight, float eps, const Tensor& cosines,
                              const Tensor& sines);
std::vector<ExactSum> group_sums(const Tensor& x, std::int64_t groups, std::int64_t cell);
/// count: elements in a group.
GroupStatistics group_statistics(const Tensor& x, std::int64_t groups, std::int64_t cell,
                                 double count, double eps);
Tensor group_norm(const Tensor& x, const GroupStatistics& statistics, const Tensor& weight,
                  const Tensor& bias, bool with_silu);
void spatial_norm_silu(const Tensor& x, const SpatialNorm& norm, Tensor& out);

/// bias: float32 [head, query, key] or empty. numerics: for the GEMMs that are used for heads with
/// more than 128 channels. log_sum_exp: for finish() to write, as for cpu_attention_work; or empty,
/// as it must be for more than 128 channels.
std::unique_ptr<ops::Attention::Work> attention_work(const ops::Rows& queries, float scale,
                                                     const Tensor& bias, const Numerics& numerics,
                                                     Tensor log_sum_exp = {});
/// Writes the gradients. At most 128 channels; no tensor is empty.
void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                        const ops::AttentionForward& forward, const Tensor& d_out, float scale,
                        std::int64_t sequences, ops::AttentionGradients& gradients);

}  // namespace reelmesh::gpu
