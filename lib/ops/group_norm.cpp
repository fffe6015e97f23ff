#include "ops/group_norm.hpp"

#include <algorithm>
#include <cmath>

#include "ops/math.hpp"
#include "ops/onednn.hpp"
#include "ops/parallel.hpp"

namespace reelmesh::ops {
namespace {

// row: room for n numbers. Loops of one kind each: a loop over bfloat16 with silu in it is not
// vectorised.
template <class T>
REELMESH_CLONES void norm_pixel(const T* x, std::int64_t n, const float* factor,
                                const float* offset, bool with_silu, float* row, T* y) {
  for (std::int64_t i = 0; i < n; ++i) row[i] = static_cast<float>(x[i]) * factor[i] + offset[i];
  if (with_silu) {
    for (std::int64_t i = 0; i < n; ++i) row[i] = silu(row[i]);
  }
  for (std::int64_t i = 0; i < n; ++i) y[i] = T(row[i]);
}

}  // namespace

GroupStatistics group_statistics(std::span<const double> rows, std::int64_t groups, double count,
                                 double eps) {
  const auto n = static_cast<std::size_t>(groups);
  std::vector<double> sums(2 * n, 0.0);
  for (std::size_t i = 0; i < rows.size(); ++i) sums[i % sums.size()] += rows[i];
  GroupStatistics statistics;
  for (std::size_t g = 0; g < n; ++g) {
    const double mean = sums[g] / count;
    const double variance = std::max(0.0, sums[n + g] / count - mean * mean);
    statistics.mean.push_back(static_cast<float>(mean));
    statistics.rstd.push_back(static_cast<float>(1.0 / std::sqrt(variance + eps)));
  }
  return statistics;
}

Tensor group_norm(const Tensor& x, const GroupStatistics& statistics, const Tensor& weight,
                  const Tensor& bias, bool with_silu) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const std::int64_t n = x.shape(3);
  const std::int64_t size = n / static_cast<std::int64_t>(statistics.mean.size());
  expect(weight.numel() == n && bias.numel() == n, "group norm of {} with {} weights",
         to_string(x.shape()), weight.numel());
  if (x.empty()) return out;
  // (x − mean)·rstd·weight + bias as one product and one sum for each channel.
  std::vector<float> factor(static_cast<std::size_t>(n)), offset(static_cast<std::size_t>(n));
  for (std::int64_t c = 0; c < n; ++c) {
    const auto i = static_cast<std::size_t>(c), group = static_cast<std::size_t>(c / size);
    factor[i] = statistics.rstd[group] * weight.data<float>()[c];
    offset[i] = bias.data<float>()[c] - statistics.mean[group] * factor[i];
  }
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(x.numel() / n, 256, [&](std::int64_t pixel) {
      auto* row =
          static_cast<float*>(thread_scratch(4, static_cast<std::size_t>(n) * sizeof(float)));
      norm_pixel(x.data<T>() + pixel * n, n, factor.data(), offset.data(), with_silu, row,
                 out.data<T>() + pixel * n);
    });
  });
  return out;
}

}  // namespace reelmesh::ops
