// ops::Linear on a GPU: GEMMs by cuBLASLt.
#include "ops/linear.hpp"

#include <algorithm>

#include "ops/cuda/linear.hpp"
#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

using ops::Activation;
using ops::Linear;

class LinearOnGpu : public KernelTest {
 protected:
  static Tensor random(const Shape& shape, unsigned seed, float scale = 1.0F) {
    return random_tensor(shape, seed, GetParam(), scale);
  }
};
INSTANTIATE_TEST_SUITE_P(Types, LinearOnGpu, all_types, type_name);

TEST_P(LinearOnGpu, MayTakeTf32) {
  const Tensor x = random({40, 256}, 1), w = random({96, 256}, 2, 0.05F);
  const Linear layer(w.on(test_device())), rounding(w.on(test_device()), {}, {.tf32 = true});
  const Tensor exact = layer(x.on(test_device())).on({});
  const Tensor rounded = rounding(x.on(test_device())).on({});
  EXPECT_TRUE(same_bits(layer(x.on(test_device())).on({}), exact));
  if (GetParam() != DType::float32) {
    EXPECT_TRUE(same_bits(rounded, exact));
    return;
  }
  EXPECT_LT(relative_error(rounded, exact), 2e-3);
  EXPECT_GT(relative_error(rounded, exact), 1e-5);  // TF32 is really used
}

TEST_P(LinearOnGpu, MayBeChosenByTheNumberOfRows) {
  const Tensor x = random({40, 256}, 1), w = random({96, 256}, 2, 0.05F);
  const Linear layer(w.on(test_device())),
      choosing(w.on(test_device()), {}, {.reproducible = false});
  const Tensor fixed = layer(x.on(test_device())).on({});
  const Tensor chosen = choosing(x.on(test_device())).on({});
  EXPECT_LT(relative_error(chosen, fixed), tolerance());
  if (size(0, 1) == 0 && GetParam() == DType::float32) {  // the emulated library splits sums
    EXPECT_FALSE(same_bits(chosen, fixed));
  }
  EXPECT_TRUE(same_bits(layer(x.on(test_device())).on({}), fixed));
}

// On an emulated GPU the fastest algorithm has other bits than the reference.
TEST_P(LinearOnGpu, MeasuredAlgorithmsHaveTheBitsOfTheReference) {
  const std::int64_t rows = 1025, in = size(24, 3072), out = 1024;
  const Tensor x = there(random({rows, in}, 1)), w = there(random({out, in}, 2, 0.05F));
  const Linear layer(w), choosing(w, {}, {.reproducible = false});
  const Tensor all = back(layer(x)), few = back(layer(x.rows(100, 3)));
  EXPECT_TRUE(same_bits(few, all.rows(100, 3).clone()));
  EXPECT_LT(relative_error(back(choosing(x)), all), tolerance());

  const auto timings = gpu::time_products(x, w, {}, Linear::usual_rows);
  ASSERT_GE(timings.size(), 2U);
  EXPECT_TRUE(timings.front().same_bits);
  for (const gpu::ProductTiming& timing : timings) EXPECT_GE(timing.seconds, 0);
  const auto same = std::ranges::count_if(timings, &gpu::ProductTiming::same_bits);
  EXPECT_GE(same, 1);
  if (size(0, 1) == 0 && GetParam() == DType::float32) {
    EXPECT_EQ(same, 2);  // the reference, first as such, then as a proposal for these rows
    EXPECT_EQ(timings.size(), 4U);
  }
}

TEST_P(LinearOnGpu, TheReferenceIsChosenForAllRows) {
  const Tensor x = there(random({300, 256}, 1)), w = there(random({96, 256}, 2, 0.05F));
  const Linear layer(w);
  const Tensor all = back(layer(x, Activation::none, 300));
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {7, 128}}) {
    EXPECT_TRUE(same_bits(back(layer(x.rows(first, count), Activation::none, 300)),
                          all.rows(first, count).clone()));
  }
  if (size(0, 1) == 0 && GetParam() == DType::float32) {  // other sums for other numbers of rows
    EXPECT_FALSE(same_bits(back(layer(x, Activation::none, 301)), all));
  }
}

TEST_P(LinearOnGpu, AgreesWithTheCpu) {
  for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{24, 40},
                                {64, size(328, 1920)},
                                {size(328, 1920), size(72, 5760)},
                                {size(520, 3072), 64}}) {
    for (const std::int64_t rows : {1, 7, 260}) {
      for (const Activation activation :
           {Activation::none, Activation::silu, Activation::gelu_tanh}) {
        for (const bool with_bias : {false, true}) {
          const Tensor x = random({rows, 1, in}, 1), w = random({out, in}, 2, 0.05F);
          const Tensor b = with_bias ? random({out}, 3) : Tensor{};
          EXPECT_LT(relative_error(back(Linear(there(w), there(b))(there(x), activation)),
                                   Linear(w, b)(x, activation)),
                    tolerance())
              << rows << "x" << in << "x" << out;
        }
      }
    }
  }
}

// d·W by the values of the layer is what a layer of the transposed weight gives.
TEST_P(LinearOnGpu, BackwardIsTheTransposedProduct) {
  for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{24, 40},
                                {size(72, 1920), size(328, 7680)},
                                {size(520, 3072), 64}}) {
    const std::int64_t rows = 2500;
    const Tensor w = random({out, in}, 2, 0.05F), d = random({rows, 1, out}, 1);
    Tensor transposed = Tensor::empty({in, out}, GetParam());
    const std::int64_t element = size_of(GetParam());
    for (std::int64_t i = 0; i < in * out; ++i) {
      std::memcpy(static_cast<std::byte*>(transposed.raw()) + i * element,
                  static_cast<const std::byte*>(w.raw()) + (i % out * in + i / out) * element,
                  static_cast<std::size_t>(element));
    }
    const Linear layer = Linear(there(w), there(random({out}, 3))).backward();
    EXPECT_EQ(layer.in_features(), out);
    EXPECT_EQ(layer.out_features(), in);
    const Tensor all = back(layer(there(d)));
    EXPECT_EQ(all.shape(), (Shape{rows, 1, in}));
    EXPECT_LT(relative_error(all, Linear(transposed)(d)), tolerance()) << in << "x" << out;
  }
}

TEST_P(LinearOnGpu, WeightsComeInPieces) {
  const Tensor w = random({700, 64}, 1, 0.05F), x = there(random({5, 64}, 2));
  const ops::WeightRows rows{
      64,
      700,
      GetParam(),
      [&](std::int64_t first, std::int64_t count, void* into, std::int64_t stride) {
        for (std::int64_t r = 0; r < count; ++r) {
          std::memcpy(static_cast<std::byte*>(into) + r * stride * size_of(w.dtype()),
                      w.rows(first + r, 1).raw(),
                      static_cast<std::size_t>(64 * size_of(w.dtype())));
        }
      },
      test_device(),
      {}};
  EXPECT_TRUE(same_bits(back(Linear(rows)(x)), back(Linear(there(w))(x))));
}

}  // namespace
}  // namespace reelmesh::test
