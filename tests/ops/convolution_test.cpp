#include "ops/convolution.hpp"

#include <gtest/gtest.h>

#include "ops/products.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::ops {
namespace {

using reelmesh::test::random_tensor;
using reelmesh::test::relative_error;
using reelmesh::test::same_bits;

// Reference: the whole image, causal in time; frames before the first repeat it.
Tensor plain_convolution(const Tensor& input, const Tensor& weights, const Tensor& bias,
                         std::int64_t enlarged, const Window& window = {}) {
  const Tensor x = input.to(DType::float32), w = weights.to(DType::float32);
  const std::int64_t in = w.shape(1), kt = w.shape().size() == 5 ? w.shape(2) : 1;
  const std::int64_t frames = x.shape(0), rows = x.shape(1) * enlarged;
  const std::int64_t columns = x.shape(2) * enlarged, n = window.kernel, taps = kt * n * n;
  Tensor out = Tensor::empty({frames, window.results(rows), window.results(columns), w.shape(0)},
                             DType::float32);
  float* y = out.data<float>();
  for (std::int64_t t = 0; t < frames; ++t) {
    for (std::int64_t r = 0; r < out.shape(1); ++r) {
      for (std::int64_t c = 0; c < out.shape(2); ++c) {
        for (std::int64_t o = 0; o < w.shape(0); ++o) {
          double sum = bias.data<float>()[o];
          for (std::int64_t k = 0; k < taps; ++k) {
            const std::int64_t time = std::max<std::int64_t>(0, t + k / (n * n) - (kt - 1));
            const std::int64_t row = r * window.stride + k / n % n - window.before;
            const std::int64_t column = c * window.stride + k % n - window.before;
            if (row < 0 || row >= rows || column < 0 || column >= columns) continue;
            const float* pixel =
                x.data<float>() +
                ((time * x.shape(1) + row / enlarged) * x.shape(2) + column / enlarged) * in;
            for (std::int64_t i = 0; i < in; ++i) {
              sum += double(pixel[i]) * w.data<float>()[(o * in + i) * taps + k];
            }
          }
          *y++ = float(sum);
        }
      }
    }
  }
  return out;
}

Tensor image_rows(const Tensor& x, std::int64_t first, std::int64_t count) {
  Tensor y = Tensor::empty({x.shape(0), count, x.shape(2), x.shape(3)}, x.dtype());
  for (std::int64_t t = 0; t < x.shape(0); ++t) {
    const Tensor frame = x.rows(t, 1).reshape({x.shape(1), x.shape(2), x.shape(3)});
    std::copy_n(static_cast<const std::byte*>(frame.rows(first, count).raw()),
                frame.rows(first, count).bytes(), static_cast<std::byte*>(y.rows(t, 1).raw()));
  }
  return y;
}

TEST(Convolution, EqualsAPlainLoop) {
  const Tensor x = random_tensor({3, 7, 37, 5}, 1), b = random_tensor({3}, 2);
  const RowWindow whole{0, 7, 7}, twice{0, 14, 14};
  const Tensor w3 = random_tensor({3, 5, 3, 3, 3}, 3), w2 = random_tensor({3, 5, 3, 3}, 4);
  EXPECT_LT(relative_error(Convolution(w3, b)(x, whole, whole), plain_convolution(x, w3, b, 1)),
            2e-6);
  EXPECT_LT(relative_error(Convolution(w2, b)(x, whole, whole), plain_convolution(x, w2, b, 1)),
            2e-6);
  EXPECT_LT(relative_error(Convolution(w2, b)(x, whole, twice), plain_convolution(x, w2, b, 2)),
            2e-6);
  const Tensor xb = x.to(DType::bfloat16), wb = w3.to(DType::bfloat16);
  const Tensor expected = plain_convolution(xb, wb, b, 1);
  EXPECT_LT(relative_error(Convolution(wb, b)(xb, whole, whole), expected), 5e-3);
  choose_products(has_bfloat16_products() ? Products::bfloat16 : Products::float32);
  const Convolution narrow(wb, b);
  choose_products(Products::automatic);
  EXPECT_LT(relative_error(narrow(xb, whole, whole), expected), 5e-3);
}

// Zeros on one side only, larger and smaller kernels, strides that do and do not divide the image.
TEST(Convolution, TakesKernelStrideAndPadding) {
  const Tensor b = random_tensor({3}, 2);
  for (const Window& window : {Window{3, 2, 0, 1}, Window{3, 2, 1, 1}, Window{5, 2, 2, 1},
                               Window{1, 1, 0, 0}, Window{4, 3, 0, 2}}) {
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{14, 134}, {7, 37}}) {
      const Tensor x = random_tensor({3, rows, columns, 5}, 1);
      const std::int64_t height = window.results(rows);
      for (const Shape& shape :
           {Shape{3, 5, 3, window.kernel, window.kernel}, {3, 5, window.kernel, window.kernel}}) {
        const Tensor w = random_tensor(shape, 3);
        EXPECT_LT(
            relative_error(Convolution(w, b, {}, window)(x, {0, rows, rows}, {0, height, height}),
                           plain_convolution(x, w, b, 1, window)),
            2e-6)
            << to_string(shape) << " over " << rows << " x " << columns << ", stride "
            << window.stride;
      }
    }
  }
}

// The image is a piece in the middle and four around it, which inner tiles must not read (NaN).
TEST(Convolution, InnerTilesNeedOnePieceAndOuterTilesTheRest) {
  const std::int64_t height = 21, width = 150, in = 16;
  const Tensor x = random_tensor({2, height, width, in}, 1);
  const Convolution convolution(random_tensor({4, in, 3, 3, 3}, 3), random_tensor({4}, 2));
  const Tensor whole = convolution(x, {0, height, height}, {0, height, height});
  const auto part = [&](const Tensor& from, const ImageBox& box) {
    const Tensor rows = image_rows(from, box.row, box.rows);
    const std::int64_t channels = from.shape(3);
    Tensor to = Tensor::empty({2, box.rows, box.columns, channels}, DType::float32);
    for (std::int64_t i = 0; i < 2 * box.rows; ++i) {
      std::copy_n(rows.data<float>() + (i * width + box.column) * channels, box.columns * channels,
                  to.data<float>() + i * box.columns * channels);
    }
    return to;
  };
  const ImageBox own{5, 11, 30, 90};
  const std::vector<ImageBox> around{
      {4, 1, 29, 92}, {16, 1, 29, 92}, {5, 11, 29, 1}, {5, 11, 120, 1}};
  Image image{height, width, {{own, part(x, own)}}};
  for (const ImageBox& box : around) {
    image.pieces.push_back({box, Tensor::empty({2, box.rows, box.columns, in}, DType::float32)});
    for (float& value : image.pieces.back().values.span<float>()) value = NAN;
  }
  Tensor out = Tensor::zeros({2, own.rows, own.columns, 4}, DType::float32);
  convolution.run(image, {}, 1, own, out, Tiles::inner);
  const Tensor expected = part(whole, own);
  std::int64_t done = 0;
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const float value = out.data<float>()[i];
    if (value == 0.0F) continue;
    ASSERT_EQ(value, expected.data<float>()[i]) << i;
    ++done;
  }
  // The inner tiles of 4 x 32 pixels: rows [8, 12), columns [32, 96).
  EXPECT_EQ(done, 2 * 4 * 64 * 4);
  for (std::size_t i = 0; i < around.size(); ++i) image.pieces[i + 1].values = part(x, around[i]);
  convolution.run(image, {}, 1, own, out, Tiles::outer);
  EXPECT_TRUE(same_bits(out, expected));
  image.pieces.pop_back();
  EXPECT_THROW(convolution.run(image, {}, 1, own, out, Tiles::outer), Error)
      << "a strip is missing";
}

TEST(Convolution, RefusesAWindowWithoutItsHalo) {
  const Convolution convolution(random_tensor({4, 4, 3, 3}, 3), random_tensor({4}, 2));
  EXPECT_THROW(convolution(random_tensor({1, 3, 5, 4}, 1), {2, 3, 9}, {2, 3, 9}), Error);
}

}  // namespace
}  // namespace reelmesh::ops
