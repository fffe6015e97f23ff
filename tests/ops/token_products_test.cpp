#include "ops/token_products.hpp"

#include <gtest/gtest.h>
#include <omp.h>

#include "ops/amx.hpp"
#include "ops/products.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::ops {
namespace {

using reelmesh::test::random_tensor;
using reelmesh::test::relative_error;
using reelmesh::test::same_bits;

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

Tensor columns(const Tensor& x, std::int64_t first, std::int64_t count) {
  Tensor out = Tensor::empty({x.shape(0), count}, x.dtype());
  const std::int64_t size = size_of(x.dtype()), n = x.shape(1);
  for (std::int64_t row = 0; row < x.shape(0); ++row) {
    std::memcpy(static_cast<std::byte*>(out.raw()) + row * count * size,
                static_cast<const std::byte*>(x.raw()) + (row * n + first) * size,
                static_cast<std::size_t>(count * size));
  }
  return out;
}

// Calls f with each way in which products of bfloat16 are computed on this processor.
template <class F>
void with_all_products(const F& f) {
  for (const Products products : {Products::automatic, Products::float32, Products::bfloat16}) {
    if (products == Products::bfloat16 && !has_bfloat16_products()) continue;
    choose_products(products);
    f(bfloat16_products());
  }
  choose_products(Products::automatic);
  if (!has_bfloat16_products()) return;  // with AMX there are also oneDNN's
  amx::use_plain_kernels(true);
  f("AMX's plain kernels");
  amx::use_plain_kernels(false);
}

struct Size {
  std::int64_t tokens, m, n;
};

TEST(TokenProducts, AreThoseOfAPlainLoop) {
  for (const Size& size : {Size{1, 1, 1}, Size{37, 3, 5}, Size{512, 64, 64}, Size{513, 65, 64},
                           Size{700, 8, 130}, Size{1100, 130, 70}}) {
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

// An element has the same bits whichever other rows and columns are computed with it.
TEST(TokenProducts, AnElementDependsOnItsColumnsAlone) {
  const std::int64_t tokens = 700, m = 140, n = 200;
  for (const DType dtype : types) {
    const Tensor a = random_tensor({tokens, m}, 1, dtype), b = random_tensor({tokens, n}, 2, dtype);
    with_all_products([&](std::string_view products) {
      const Tensor whole = token_products(a, b);
      for (const auto& [row, rows] : {std::pair{0, 1}, {1, 139}, {17, 64}, {63, 77}, {139, 1}}) {
        for (const auto& [column, count] :
             {std::pair{0, 200}, {1, 63}, {5, 130}, {64, 64}, {120, 3}, {199, 1}}) {
          const Tensor part = token_products(columns(a, row, rows), columns(b, column, count));
          EXPECT_TRUE(same_bits(part, columns(whole.rows(row, rows), column, count)))
              << name_of(dtype) << ", rows from " << row << ", columns from " << column
              << ", products in " << products;
        }
      }
    });
  }
}

TEST(TokenProducts, DoNotDependOnThreads) {
  const int threads = omp_get_max_threads();
  for (const DType dtype : types) {
    const Tensor a = random_tensor({1100, 70}, 1, dtype), b = random_tensor({1100, 300}, 2, dtype);
    omp_set_num_threads(1);
    const Tensor expected = token_products(a, b);
    for (const int other : {2, 5}) {
      omp_set_num_threads(other);
      EXPECT_TRUE(same_bits(token_products(a, b), expected))
          << name_of(dtype) << ", " << other << " threads";
    }
  }
  omp_set_num_threads(threads);
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

TEST(TokenSums, AnElementDependsOnItsColumnAlone) {
  for (const DType dtype : types) {
    const Tensor a = random_tensor({700, 300}, 1, dtype), b = random_tensor({700, 300}, 2, dtype);
    const Tensor whole = token_sums(a, b, 40);
    for (const auto& [column, count] : {std::pair{0, 1}, {1, 128}, {127, 2}, {200, 100}}) {
      EXPECT_TRUE(same_bits(token_sums(columns(a, column, count), columns(b, column, count), 40),
                            columns(whole, column, count)))
          << name_of(dtype) << ", columns from " << column;
    }
  }
}

}  // namespace
}  // namespace reelmesh::ops
