#include "ops/convolution.hpp"

#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

using ops::Image;
using ops::ImageBox;
using ops::Tiles;

class ConvolutionKernel : public KernelTest {
 protected:
  static Tensor random(const Shape& shape, unsigned seed) {
    return random_tensor(shape, seed, GetParam());
  }
  // 16-bit results are rounded before and after the bias is added.
  static double tolerance() { return 2 * KernelTest::tolerance(); }
  static Image there(const Image& image) {
    Image result = image;
    for (Image::Piece& piece : result.pieces) piece.values = test::there(piece.values);
    return result;
  }
  static Image whole(const Tensor& x) {
    return {x.shape(1), x.shape(2), {{{0, x.shape(1), 0, x.shape(2)}, x}}};
  }
};
INSTANTIATE_TEST_SUITE_P(Types, ConvolutionKernel, all_types, type_name);

TEST_P(ConvolutionKernel, AgreesWithTheCpu) {
  for (const std::int64_t kt : {1, 3}) {
    for (const std::int64_t enlarged : {1, 2}) {
      for (const bool earlier : {false, true}) {
        for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{3, 5}, {16, 8}}) {
          const Tensor w = random({out, in, kt, 3, 3}, 1), b = random({out}, 2);
          const Tensor x = random({2, 9, 21, in}, 3);
          const Image image = whole(x);
          Image before = whole(random({kt - 1, 9, 21, in}, 4));
          if (!earlier || kt == 1) before.pieces.clear();
          const ImageBox want{1, 9 * enlarged - 3, 2, 21 * enlarged - 2};
          Tensor expected = Tensor::empty({2, want.rows, want.columns, out}, GetParam());
          ops::Convolution(w, b).run(image, before, enlarged, want, expected, Tiles::all);
          Tensor y = Tensor::zeros(expected.shape(), GetParam(), test_device());
          ops::Convolution(test::there(w), test::there(b))
              .run(there(image), there(before), enlarged, want, y, Tiles::all);
          EXPECT_LT(relative_error(back(y), expected), tolerance())
              << kt << " frames, enlarged " << enlarged << ", " << in << " channels";
        }
      }
    }
  }
}

TEST_P(ConvolutionKernel, TakesKernelStrideAndPadding) {
  for (const ops::Window& window : {ops::Window{3, 2, 0, 1}, ops::Window{5, 2, 2, 1}}) {
    for (const std::int64_t kt : {1, 3}) {
      const std::int64_t in = 3, out = 5, rows = 38, columns = 70;
      const Tensor w = random({out, in, kt, window.kernel, window.kernel}, 1), b = random({out}, 2);
      const Image image = whole(random({2, rows, columns, in}, 3));
      const ImageBox want{1, window.results(rows) - 2, 2, window.results(columns) - 2};
      Tensor expected = Tensor::empty({2, want.rows, want.columns, out}, GetParam());
      ops::Convolution(w, b, {}, window).run(image, {}, 1, want, expected, Tiles::all);
      Tensor y = Tensor::zeros(expected.shape(), GetParam(), test_device());
      ops::Convolution(test::there(w), test::there(b), {}, window)
          .run(there(image), {}, 1, want, y, Tiles::all);
      EXPECT_LT(relative_error(back(y), expected), tolerance())
          << kt << " frames, kernel " << window.kernel;
    }
  }
}

TEST_P(ConvolutionKernel, MoreTilesThanABatchHas) {
  const Tensor w = random({8, 8, 3, 3}, 1), b = random({8}, 2);
  const Tensor x = random({1, 70, 130, 8}, 3);  // 5 × 5 tiles, batches of 16
  Tensor expected = Tensor::empty({1, 70, 130, 8}, GetParam());
  ops::Convolution(w, b).run(whole(x), {}, 1, {0, 70, 0, 130}, expected, Tiles::all);
  Tensor y = Tensor::zeros(expected.shape(), GetParam(), test_device());
  ops::Convolution(test::there(w), test::there(b))
      .run(there(whole(x)), {}, 1, {0, 70, 0, 130}, y, Tiles::all);
  EXPECT_LT(relative_error(back(y), expected), tolerance());
}

}  // namespace
}  // namespace reelmesh::test
