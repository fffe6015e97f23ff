#pragma once
// Group norm of images that may be distributed over ranks: statistics come from the sums of
// group_sums (ops/norm.hpp), added over all parts.
#include <span>
#include <vector>

#include "ops/exact_sum.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// Mean and 1/√(variance + eps) of each group.
struct GroupStatistics {
  std::vector<float> mean, rstd;
};

/// sums: Σx of every group, then Σx² of every group; count: elements in a group.
GroupStatistics group_statistics(std::span<const ExactSum> sums, double count, double eps);

/// (x − mean)·rstd·weight + bias written as x·factor + offset, by channel.
struct ChannelFactors {
  std::vector<float> factor, offset;
};
/// weight, bias: float32 [channel].
ChannelFactors channel_factors(const GroupStatistics& statistics, const Tensor& weight,
                               const Tensor& bias);

/// y = (x − mean)·rstd·weight + bias, then silu if with_silu, rounded once. x: [frame, row, column,
/// channel]; weight, bias: float32 [channel].
Tensor group_norm(const Tensor& x, const GroupStatistics& statistics, const Tensor& weight,
                  const Tensor& bias, bool with_silu);

}  // namespace reelmesh::ops
