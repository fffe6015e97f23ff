#include "ops/linear.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "ops/math.hpp"
#include "ops/products.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::ops {
namespace {

using reelmesh::test::random_tensor;
using reelmesh::test::relative_error;
using reelmesh::test::same_bits;

Tensor plain_linear(const Tensor& x, const Tensor& w, const Tensor& b) {
  const std::int64_t n = w.shape(0), k = w.shape(1), rows = x.numel() / k;
  const Tensor a = x.to(DType::float32), m = w.to(DType::float32);
  Tensor out = Tensor::empty({rows, n}, DType::float32);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < n; ++c) {
      double sum = b.empty() ? 0 : double(b.to(DType::float32).data<float>()[c]);
      for (std::int64_t i = 0; i < k; ++i) {
        sum += double(a.data<float>()[r * k + i]) * double(m.data<float>()[c * k + i]);
      }
      out.data<float>()[r * n + c] = float(sum);
    }
  }
  return out;
}

TEST(Linear, EqualsAPlainProduct) {
  for (const Shape& size :
       {Shape{1, 16, 24}, Shape{70, 400, 33}, Shape{5, 7, 80}, Shape{130, 1000, 64}}) {
    const Tensor x = random_tensor({size[0], size[2]}, 1), w = random_tensor({size[1], size[2]}, 2);
    const Tensor b = random_tensor({size[1]}, 3);
    EXPECT_LT(relative_error(Linear(w, b)(x), plain_linear(x, w, b)), 2e-6);
    EXPECT_LT(relative_error(Linear(w)(x), plain_linear(x, w, {})), 2e-6);
    const Tensor xb = x.to(DType::bfloat16), wb = w.to(DType::bfloat16);
    const Tensor yb = Linear(wb, b.to(DType::bfloat16))(xb);
    EXPECT_EQ(yb.dtype(), DType::bfloat16);
    EXPECT_LT(relative_error(yb, plain_linear(xb, wb, b.to(DType::bfloat16))), 5e-3);
  }
}

TEST(Linear, WeightsThatComeRowByRowGiveTheSameBits) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    const Tensor x = random_tensor({5, 72}, 1, dtype), w = random_tensor({1000, 72}, 2, dtype);
    std::vector<int> times(1000, 0);
    const WeightRows rows{
        72, 1000, dtype,
        [&](std::int64_t first, std::int64_t count, void* into, std::int64_t stride) {
          ASSERT_GE(stride, 72);
          for (std::int64_t r = 0; r < count; ++r) {
            ++times[static_cast<std::size_t>(first + r)];
            std::memcpy(static_cast<std::byte*>(into) + r * stride * size_of(dtype),
                        w.rows(first + r, 1).raw(), static_cast<std::size_t>(72 * size_of(dtype)));
          }
        }};
    EXPECT_TRUE(same_bits(Linear(rows)(x), Linear(w)(x)));
    EXPECT_EQ(times, std::vector<int>(1000, 1)) << "each row is read once";
  }
}

TEST(Linear, TakesOtherValuesInTheMemoryOfTheFirst) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const auto rows = [&](const Tensor& w) {
      return WeightRows{
          72, 1000, dtype,
          [w](std::int64_t first, std::int64_t count, void* into, std::int64_t stride) {
            for (std::int64_t r = 0; r < count; ++r) {
              const Tensor row = w.rows(first + r, 1);
              std::memcpy(static_cast<std::byte*>(into) + r * stride * size_of(w.dtype()),
                          row.raw(), static_cast<std::size_t>(row.bytes()));
            }
          }};
    };
    const Tensor x = random_tensor({5, 72}, 1, dtype), w = random_tensor({1000, 72}, 2, dtype);
    const Tensor b = random_tensor({1000}, 3, dtype);
    Linear layer(rows(random_tensor({1000, 72}, 4, dtype)), random_tensor({1000}, 5, dtype));
    const Linear copy = layer;
    layer.set_together(rows(w), b);
    EXPECT_TRUE(same_bits(copy(x), Linear(w, b)(x)));
    EXPECT_THROW(layer.set_together(rows(w)), Error) << "without a bias";
  }
}

TEST(Linear, AFailureToReadWeightsIsThrown) {
  const WeightRows rows{8, 1000, DType::float32,
                        [](std::int64_t, std::int64_t, void*, std::int64_t) {
                          fail(Status::data, "the file has shrunk");
                        }};
  EXPECT_THROW(Linear{rows}, Error);
}

TEST(Linear, ActivationsFollowTheProduct) {
  const Tensor x = random_tensor({9, 32}, 1), w = random_tensor({48, 32}, 2);
  const Linear linear(w);
  const Tensor y = linear(x), s = linear(x, Activation::silu), g = linear(x, Activation::gelu_tanh);
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const double v = y.data<float>()[i];
    EXPECT_NEAR(s.data<float>()[i], v / (1 + std::exp(-v)), 2e-6 * std::max(1.0, std::abs(v)));
    const double gelu = 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    EXPECT_NEAR(g.data<float>()[i], gelu, 2e-6 * std::max(1.0, std::abs(v)));
  }
}

// If this holds, the last tile of rows may have fewer rows than the others.
class TileProductIn : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, TileProductIn, ::testing::Values(DType::float32, DType::bfloat16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(TileProductIn, ARowHasTheSameBitsInATileOfAnyHeight) {
  const DType dtype = GetParam();
  if (!row_bits_independent_of_tile_height(dtype)) {
    GTEST_SKIP() << "not on this processor: all tiles have one height";
  }
  for (const std::int64_t columns : {512, 192, 176, 72, 64, 16, 8}) {
    for (const std::int64_t inputs : {16, 64, 72, 200, 512, 1152, 1920, 3072, 4096, 7680, 10240}) {
      const auto product = [&, x = random_tensor({64, inputs}, 1, dtype),
                            w = random_tensor({columns, inputs}, 2, dtype)](std::int64_t rows) {
        const TileProduct tile(rows, columns, inputs, dtype);
        Tensor packed = Tensor::zeros({tile.packed_elements()}, dtype);
        Tensor out = Tensor::zeros({rows, columns}, DType::float32);
        tile.packing(true, inputs).run({w.raw(), packed.raw()});
        tile.run(x.raw(), packed.raw(), out.data<float>());
        return out;
      };
      const Tensor whole = product(64);
      for (std::int64_t rows = 8; rows < 64; rows += 8) {
        EXPECT_TRUE(same_bits(product(rows), whole.rows(0, rows)))
            << rows << " x " << columns << " x " << inputs;
      }
    }
  }
}

TEST(Linear, ProductsInBfloat16AgreeWithThoseInFloat32) {
  const Tensor x = random_tensor({70, 96}, 1, DType::bfloat16),
               w = random_tensor({400, 96}, 2, DType::bfloat16), b = random_tensor({400}, 3);
  const Tensor expected = plain_linear(x, w, b);
  choose_products(has_bfloat16_products() ? Products::bfloat16 : Products::float32);
  const Linear linear(w, b);
  const Tensor y = linear(x);
  choose_products(Products::automatic);
  EXPECT_LT(relative_error(y, expected), 5e-3);
  EXPECT_LT(relative_error(Linear(w, b)(x), expected), 5e-3);
}

TEST(Math, ExpIsAccurateEverywhere) {
  double worst = 0;
  for (float x = -86.5F; x < 88.0F; x += 0.0137F) {
    worst = std::max(worst, std::abs(double(exp_approx(x)) / std::exp(double(x)) - 1));
  }
  EXPECT_LT(worst, 2.5e-7);
  EXPECT_EQ(exp_approx(-INFINITY), 0.0F);
  EXPECT_EQ(exp_approx(0.0F), 1.0F);
  EXPECT_TRUE(std::isfinite(exp_approx(1000.0F)));
}

TEST(Math, PowersOfTwoAreAccurateEverywhere) {
  double worst = 0;
  for (float x = -126.0F; x < 127.0F; x += 0.0137F) {
    worst = std::max(worst, std::abs(double(exp2_approx(x)) / std::exp2(double(x)) - 1));
  }
  EXPECT_LT(worst, 1.2e-7);
  for (const float x : {-INFINITY, -1000.0F, -127.0F}) EXPECT_EQ(exp2_approx(x), 0.0F) << x;
  for (const float x : {-126.0F, -1.0F, 0.0F, 10.0F}) EXPECT_EQ(exp2_approx(x), std::exp2(x)) << x;
}

}  // namespace
}  // namespace reelmesh::ops
