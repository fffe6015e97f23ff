#include "ops/group_norm.hpp"

#include <gtest/gtest.h>
#include <omp.h>

#include "ops/norm.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::ops {
namespace {

using reelmesh::test::random_tensor;
using reelmesh::test::relative_error;
using reelmesh::test::same_bits;

constexpr std::int64_t groups = 3;

Tensor normed(const Tensor& x, const Tensor& weight, const Tensor& bias, bool with_silu) {
  return group_norm(x, group_statistics(x, groups, 1, 1e-5), weight, bias, with_silu);
}

TEST(GroupNorm, NormalisesEachGroupOverAllPixels) {
  const Tensor x = random_tensor({2, 3, 5, 12}, 1), weight = random_tensor({12}, 2);
  const Tensor bias = random_tensor({12}, 3);
  std::vector<double> mean(groups, 0.0), squares(groups, 0.0);
  const auto group = [](std::int64_t i) { return std::size_t(i % 12 / 4); };
  for (std::int64_t i = 0; i < x.numel(); ++i) mean[group(i)] += x.data<float>()[i] / 120.0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    squares[group(i)] += std::pow(x.data<float>()[i] - mean[group(i)], 2) / 120.0;
  }
  for (const bool with_silu : {false, true}) {
    const Tensor y = normed(x, weight, bias, with_silu);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double z = (x.data<float>()[i] - mean[group(i)]) / std::sqrt(squares[group(i)] + 1e-5) *
                           weight.data<float>()[i % 12] +
                       bias.data<float>()[i % 12];
      EXPECT_NEAR(y.data<float>()[i], with_silu ? z / (1 + std::exp(-z)) : z, 3e-6);
    }
  }
  const Tensor half = x.to(DType::bfloat16);
  EXPECT_LT(relative_error(normed(half, weight, bias, true), normed(x, weight, bias, true)), 1e-2);
}

TEST(GroupNorm, HasTheSameBitsWithAnyNumberOfThreads) {
  const Tensor x = random_tensor({1, 31, 29, 12}, 1), weight = random_tensor({12}, 2);
  const Tensor bias = random_tensor({12}, 3), y = normed(x, weight, bias, true);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(3);
  EXPECT_TRUE(same_bits(normed(x, weight, bias, true), y));
  omp_set_num_threads(threads);
  EXPECT_TRUE(normed(Tensor::empty({1, 0, 29, 12}, DType::float32), weight, bias, true).empty());
}

}  // namespace
}  // namespace reelmesh::ops
