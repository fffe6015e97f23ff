#include "ops/group_norm.hpp"

#include <algorithm>
#include <cmath>

#include "ops/cuda/ops.hpp"
#include "ops/math.hpp"
#include "ops/norm.hpp"
#include "ops/operation.hpp"
#include "ops/parallel.hpp"
#include "ops/row_floats.hpp"
#include "tensor/dispatch.hpp"

namespace reelmesh::ops {
namespace {

// Pixels of n channels. x and y may be the same.
REELMESH_CLONES void norm_pixels(const float* x, float* y, std::int64_t pixels, std::int64_t n,
                                 const float* factor, const float* offset, bool with_silu) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel, x += n, y += n) {
    if (with_silu) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) y[i] = silu(x[i] * factor[i] + offset[i]);
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * factor[i] + offset[i];
    }
  }
}

}  // namespace

GroupStatistics group_statistics(std::span<const ExactSum> sums, double count, double eps,
                                 Device device) {
  const std::size_t groups = sums.size() / 2;
  std::vector<float> mean, rstd;
  for (std::size_t g = 0; g < groups; ++g) {
    const MeanRstd of_group(sums[g], sums[groups + g], count, eps);
    mean.push_back(of_group.mean);
    rstd.push_back(of_group.rstd);
  }
  const auto tensor = [&](std::span<const float> x) {
    return Tensor::of<float>(x, {static_cast<std::int64_t>(groups)}).on(device);
  };
  return {tensor(mean), tensor(rstd)};
}

ChannelFactors channel_factors(const GroupStatistics& statistics, const Tensor& weight,
                               const Tensor& bias) {
  const auto channels = static_cast<std::size_t>(weight.numel());
  const std::span<const float> mean = statistics.mean.span<float>(),
                               rstd = statistics.rstd.span<float>();
  const std::size_t size = channels / mean.size();
  expect(bias.numel() == weight.numel() && size * mean.size() == channels,
         "group norm of {} groups with {} weights and {} biases", mean.size(), channels,
         bias.numel());
  ChannelFactors result{std::vector<float>(channels), std::vector<float>(channels)};
  for (std::size_t c = 0; c < channels; ++c) {
    result.factor[c] = rstd[c / size] * weight.data<float>()[c];
    result.offset[c] = bias.data<float>()[c] - mean[c / size] * result.factor[c];
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
    const std::int64_t pixels = x.numel() / n, together = pixels_together(n);
    parallel_for((pixels + together - 1) / together, 4, [&](std::int64_t task) {
      const std::int64_t first = task * together, count = std::min(together, pixels - first);
      with_floats(x.data<T>() + first * n, out.data<T>() + first * n, count * n,
                  [&](const float* from, float* into) {
                    norm_pixels(from, into, count, n, factors, offsets, with_silu);
                  });
    });
  });
  return out;
}

}  // namespace cpu
}  // namespace

GroupStatistics group_statistics(const Tensor& x, std::int64_t groups, std::int64_t cell,
                                 double eps) {
  expect(x.shape(1) % cell == 0 && x.shape(2) % cell == 0, "{} in cells of {} pixels", x.shape(),
         cell);
  const auto count = static_cast<double>(x.numel() / groups);
  return dispatch(
      x.device(),
      [&] {
        // On the CPU, group_sums counts the same.
        const Operation operation(trace::spans::norm,
                                  {norm_flops::group_sums * x.numel(), x.bytes()},
                                  operation_kinds::group_sums);
        return gpu::group_statistics(x, groups, cell, count, eps);
      },
      [&] { return group_statistics(group_sums(x, groups, cell), count, eps, {}); },
      [&] { return group_statistics(group_sums(x, groups, cell), count, eps, x.device()); });
}

Tensor group_norm(const Tensor& x, const GroupStatistics& statistics, const Tensor& weight,
                  const Tensor& bias, bool with_silu) {
  expect(weight.numel() == x.shape(3), "group norm of {} with {} weights", x.shape(),
         weight.numel());
  const Operation operation(trace::spans::norm,
                            {(norm_flops::group + (with_silu ? norm_flops::silu : 0)) * x.numel(),
                             2 * x.bytes() + weight.bytes() + bias.bytes()},
                            operation_kinds::group_norm);
  return dispatch(
      x.device(), [&] { return gpu::group_norm(x, statistics, weight, bias, with_silu); },
      [&] { return cpu::group_norm(x, statistics, weight, bias, with_silu); },
      [&] { return Tensor::empty(x.shape(), x.dtype(), x.device()); });
}

}  // namespace reelmesh::ops
