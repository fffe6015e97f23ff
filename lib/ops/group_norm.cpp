#include "ops/group_norm.hpp"

#include <algorithm>
#include <cmath>

#include "ops/cuda/ops.hpp"
#include "ops/math.hpp"
#include "ops/onednn.hpp"
#include "ops/parallel.hpp"
#include "tensor/dispatch.hpp"

namespace reelmesh::ops {
namespace {

// row: scratch for n floats. The loops are separate because compilers do not vectorise a loop over
// bfloat16 that contains silu.
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

GroupStatistics group_statistics(std::span<const ExactSum> sums, double count, double eps) {
  const std::size_t groups = sums.size() / 2;
  GroupStatistics statistics;
  for (std::size_t g = 0; g < groups; ++g) {
    const double mean = sums[g].value() / count;
    const double variance = std::max(0.0, sums[groups + g].value() / count - mean * mean);
    statistics.mean.push_back(static_cast<float>(mean));
    statistics.rstd.push_back(static_cast<float>(1.0 / std::sqrt(variance + eps)));
  }
  return statistics;
}

ChannelFactors channel_factors(const GroupStatistics& statistics, const Tensor& weight,
                               const Tensor& bias) {
  const auto channels = static_cast<std::size_t>(weight.numel());
  const std::size_t size = channels / statistics.mean.size();
  expect(bias.numel() == weight.numel() && size * statistics.mean.size() == channels,
         "group norm of {} groups with {} weights and {} biases", statistics.mean.size(), channels,
         bias.numel());
  ChannelFactors result{std::vector<float>(channels), std::vector<float>(channels)};
  for (std::size_t c = 0; c < channels; ++c) {
    result.factor[c] = statistics.rstd[c / size] * weight.data<float>()[c];
    result.offset[c] = bias.data<float>()[c] - statistics.mean[c / size] * result.factor[c];
  }
  return result;
}

namespace {
namespace cpu {

Tensor group_norm(const Tensor& x, const GroupStatistics& statistics, const Tensor& weight,
                  const Tensor& bias, bool with_silu) {
  const std::int64_t n = x.shape(3);
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  if (x.empty()) return out;
  const ChannelFactors channels = channel_factors(statistics, weight, bias);
  const float *factors = channels.factor.data(), *offsets = channels.offset.data();
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(x.numel() / n, 256, [&](std::int64_t pixel) {
      auto* row =
          static_cast<float*>(thread_scratch(4, static_cast<std::size_t>(n) * sizeof(float)));
      norm_pixel(x.data<T>() + pixel * n, n, factors, offsets, with_silu, row,
                 out.data<T>() + pixel * n);
    });
  });
  return out;
}

}  // namespace cpu
}  // namespace

Tensor group_norm(const Tensor& x, const GroupStatistics& statistics, const Tensor& weight,
                  const Tensor& bias, bool with_silu) {
  expect(weight.numel() == x.shape(3), "group norm of {} with {} weights", to_string(x.shape()),
         weight.numel());
  return dispatch(
      x.device(), [&] { return gpu::group_norm(x, statistics, weight, bias, with_silu); },
      [&] { return cpu::group_norm(x, statistics, weight, bias, with_silu); });
}

}  // namespace reelmesh::ops
