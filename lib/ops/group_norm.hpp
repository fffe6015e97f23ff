#pragma once
// Group norm of images that may be distributed over ranks: statistics come from the sums of
// group_sums (ops/norm.hpp), added over all parts.
#include <cmath>
#include <span>
#include <vector>

#include "ops/exact_sum.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// Mean and 1/√(variance + eps) of each group, float32 [group], on the device of the image.
struct GroupStatistics {
  Tensor mean, rstd;
};

/// Statistics of a group from its sums Σx and Σx² over `count` elements.
struct MeanRstd {
  float mean, rstd;
  REELMESH_HOST_DEVICE MeanRstd(const ExactSum& sum, const ExactSum& squares, double count,
                                double eps) {
    const double centre = sum.value() / count;
    const double variance = squares.value() / count - centre * centre;
    mean = static_cast<float>(centre);
    rstd = static_cast<float>(1.0 / std::sqrt((variance > 0.0 ? variance : 0.0) + eps));
  }
};

/// sums: Σx of every group, then Σx² of every group, over all parts; count: elements in a group. →
/// on `device`.
GroupStatistics group_statistics(std::span<const ExactSum> sums, double count, double eps,
                                 Device device);

/// The same of an image that is not distributed, with the same bits. x, cell: as for group_sums. A
/// GPU computes all of it, without waiting.
GroupStatistics group_statistics(const Tensor& x, std::int64_t groups, std::int64_t cell,
                                 double eps);

/// (x − mean)·rstd·weight + bias written as x·factor + offset, by channel.
struct ChannelFactors {
  std::vector<float> factor, offset;
};
/// weight, bias: float32 [channel]. On the CPU.
ChannelFactors channel_factors(const GroupStatistics& statistics, const Tensor& weight,
                               const Tensor& bias);

/// y = (x − mean)·rstd·weight + bias, then silu if with_silu, rounded once. x: [frame, row, column,
/// channel]; weight, bias: float32 [channel].
Tensor group_norm(const Tensor& x, const GroupStatistics& statistics, const Tensor& weight,
                  const Tensor& bias, bool with_silu);

}  // namespace reelmesh::ops
