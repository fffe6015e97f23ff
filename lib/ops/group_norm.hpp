#pragma once
// Group norm of images that may be spread: the sums come from group_sums (ops/norm.hpp), added up
// over all parts.
#include <span>
#include <vector>

#include "ops/exact_sum.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// Mean and 1/√(variance + eps) of each group.
struct GroupStatistics {
  std::vector<float> mean, rstd;
};

/// sums: of each group, then of its squares; count: how many numbers there are in a group.
GroupStatistics group_statistics(std::span<const ExactSum> sums, double count, double eps);

/// (x − mean)·rstd·weight + bias as one product and one sum for each channel.
struct ChannelFactors {
  std::vector<float> factor, offset;
};
/// weight, bias: float32 [channel].
ChannelFactors channel_factors(const GroupStatistics& statistics, const Tensor& weight,
                               const Tensor& bias);

/// y = (x − mean)·rstd·weight + bias, then silu where asked, rounded once. x: [frame, row, column,
/// channel]; weight, bias: float32 [channel].
Tensor group_norm(const Tensor& x, const GroupStatistics& statistics, const Tensor& weight,
                  const Tensor& bias, bool with_silu);

}  // namespace reelmesh::ops
