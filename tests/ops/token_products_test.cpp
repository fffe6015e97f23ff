#include "ops/token_products.hpp"

#include <gtest/gtest.h>

#include "support/all_products.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::ops {
namespace {

using reelmesh::test::random_tensor;
using reelmesh::test::relative_error;
using reelmesh::test::same_bits;
using reelmesh::test::with_all_products;

const std::vector<DType> types{DType::float32, DType::bfloat16, DType::float16};

// aᵀ·b in float64, rounded to float32.
Tensor plain_products(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(DType::float32), y = b.to(DType::float32);
  const std::int64_t m = x.shape(1), n = y.shape(1);
  std::vector<double> sums(static_cast<std::size_t>(m * n));
  for (std::int64_t token = 0; token < x.shape(0); ++token) {
    const float *row = x.data<float>() + token * m, *other = y.data<float>() + token * n;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        sums[static_cast<std::size_t>(i * n + j)] += double{row[i]} * double{other[j]};
      }
    }
  }
  Tensor out = Tensor::empty({m, n}, DType::float32);
  std::ranges::transform(sums, out.data<float>(),
                         [](double sum) { return static_cast<float>(sum); });
  return out;
}

struct Size {
  std::int64_t tokens, m, n;
};

TEST(TokenProducts, AreThoseOfAPlainLoop) {
  for (const Size& size : {Size{1, 1, 1}, Size{37, 3, 5}, Size{512, 64, 64}, Size{513, 65, 64},
                           Size{700, 8, 130}, Size{1100, 130, 70}, Size{4700, 70, 200}}) {
    for (const DType dtype : types) {
      const Tensor a = random_tensor({size.tokens, size.m}, 1, dtype);
      const Tensor b = random_tensor({size.tokens, size.n}, 2, dtype);
      const Tensor expected = plain_products(a, b);
      // Products of 16-bit values are exact in float32.
      with_all_products([&](std::string_view products) {
        const Tensor found = token_products(a, b);
        EXPECT_EQ(found.dtype(), DType::float32);
        EXPECT_LT(relative_error(found, expected), 3e-6)
            << size.tokens << " tokens, " << size.m << " × " << size.n << ", " << name_of(dtype)
            << ", products in " << products;
      });
    }
  }
}

TEST(TokenProducts, OfNothingAreZeros) {
  for (const Size& size : {Size{0, 3, 5}, Size{4, 0, 5}, Size{4, 3, 0}}) {
    const Tensor found = token_products(random_tensor({size.tokens, size.m}, 1),
                                        random_tensor({size.tokens, size.n}, 2));
    EXPECT_TRUE(same_bits(found, Tensor::zeros({size.m, size.n}, DType::float32)));
  }
  EXPECT_THROW(token_products(random_tensor({4, 3}, 1), random_tensor({5, 3}, 2)), Error);
}

// The sums of the first tokens and of the others, in float64.
Tensor plain_sums(const Tensor& a, const Tensor& b, std::int64_t first) {
  const Tensor x = a.to(DType::float32), y = b.empty() ? Tensor() : b.to(DType::float32);
  const std::int64_t n = x.shape(1);
  std::vector<double> sums(static_cast<std::size_t>(2 * n));
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double factor = b.empty() ? 1 : double{y.data<float>()[i]};
    sums[static_cast<std::size_t>((i / n < first ? 0 : n) + i % n)] +=
        double{x.data<float>()[i]} * factor;
  }
  Tensor out = Tensor::empty({2, n}, DType::float32);
  std::ranges::transform(sums, out.data<float>(),
                         [](double sum) { return static_cast<float>(sum); });
  return out;
}

TEST(TokenSums, AreSums) {
  for (const DType dtype : types) {
    for (const auto& [tokens, first] : {std::pair{1, 0}, {1, 1}, {37, 5}, {1300, 0}, {1300, 600}}) {
      const Tensor a = random_tensor({tokens, 150}, 1, dtype),
                   b = random_tensor({tokens, 150}, 2, dtype);
      for (const Tensor& other : {Tensor(), b}) {
        EXPECT_LT(relative_error(token_sums(a, other, first), plain_sums(a, other, first)), 3e-6)
            << tokens << " tokens, " << first << " first, " << name_of(dtype);
      }
    }
  }
  EXPECT_TRUE(same_bits(token_sums(random_tensor({0, 3}, 1), {}, 0),
                        Tensor::zeros({2, 3}, DType::float32)));
  EXPECT_THROW(token_sums(random_tensor({4, 3}, 1), random_tensor({5, 3}, 2), 0), Error);
  EXPECT_THROW(token_sums(random_tensor({4, 3}, 1), {}, 5), Error);
}

}  // namespace
}  // namespace reelmesh::ops
