#include "ops/plain_product.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "support/random_tensor.hpp"

namespace reelmesh::ops {
namespace {

using reelmesh::test::random_tensor;

class PlainProduct
    : public testing::TestWithParam<std::tuple<std::int64_t, std::int64_t, std::int64_t>> {};

TEST_P(PlainProduct, IsThatOfDoublesAndEachRowHasItsOwnBits) {
  const auto [m, n, k] = GetParam();
  const std::int64_t stride = k + 3;
  const Tensor src = random_tensor({m, stride}, 1), weights = random_tensor({k, n}, 2);
  std::vector<float> all(static_cast<std::size_t>(m * n)), one(static_cast<std::size_t>(n));
  plain_product(m, n, k, src.data<float>(), stride, weights.data<float>(), all.data(), false);
  for (std::int64_t r = 0; r < m; ++r) {
    const float* of_row = all.data() + r * n;
    for (std::int64_t c = 0; c < n; ++c) {
      double sum = 0, size = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        const double term =
            double{src.data<float>()[r * stride + i]} * double{weights.data<float>()[i * n + c]};
        sum += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(of_row[c], sum, 1e-6 * size) << r << ' ' << c;
    }
    plain_product(1, n, k, src.data<float>() + r * stride, stride, weights.data<float>(),
                  one.data(), false);
    EXPECT_EQ(std::memcmp(one.data(), of_row, one.size() * sizeof(float)), 0) << r;
  }
  std::vector<float> twice = all;
  plain_product(m, n, k, src.data<float>(), stride, weights.data<float>(), twice.data(), true);
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(twice[i], 2 * all[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Sizes, PlainProduct,
                         testing::Values(std::tuple{1, 1, 1}, std::tuple{64, 16, 300},
                                         std::tuple{7, 33, 5}, std::tuple{6, 64, 512}));

}  // namespace
}  // namespace reelmesh::ops
