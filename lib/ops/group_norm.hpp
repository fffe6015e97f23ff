#pragma once
// Group norm of images whose rows may be spread: the sums come from group_sums (ops/norm.hpp), all
// rows in global order.
#include <span>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// Mean and 1/√(variance + eps) of each group.
struct GroupStatistics {
  std::vector<float> mean, rstd;
};

/// rows: what group_sums gives, for all rows of the image one after the other; they are added up in
/// that order. count: how many numbers there are in a group.
GroupStatistics group_statistics(std::span<const double> rows, std::int64_t groups, double count,
                                 double eps);

/// y = (x − mean)·rstd·weight + bias, then silu where asked, rounded once. x: [frame, row, column,
/// channel]; weight, bias: float32 [channel].
Tensor group_norm(const Tensor& x, const GroupStatistics& statistics, const Tensor& weight,
                  const Tensor& bias, bool with_silu);

}  // namespace reelmesh::ops
