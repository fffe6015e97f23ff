#include "ops/convolution.hpp"

#include "kernels/test_device.hpp"

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
  // The pixels of x in `box`, as a piece of an image.
  static Image::Piece piece(const Tensor& x, const ImageBox& box) {
    const std::int64_t pixel = x.shape(3) * size_of(x.dtype());
    Tensor part = Tensor::empty({x.shape(0), box.rows, box.columns, x.shape(3)}, x.dtype());
    for (std::int64_t i = 0; i < x.shape(0) * box.rows; ++i) {
      const std::int64_t row = i / box.rows * x.shape(1) + box.row + i % box.rows;
      std::memcpy(static_cast<std::byte*>(part.raw()) + i * box.columns * pixel,
                  static_cast<const std::byte*>(x.raw()) + (row * x.shape(2) + box.column) * pixel,
                  static_cast<std::size_t>(box.columns * pixel));
    }
    return {box, part};
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

TEST_P(ConvolutionKernel, PartsGiveTheBitsOfTheWhole) {
  const std::int64_t rows = 37, columns = 70, in = 8, out = size(8, 128);
  const Tensor w = random({out, in, 3, 3, 3}, 1), b = random_tensor({out}, 2);
  const Tensor x = random({1, rows, columns, in}, 3), earlier = random({2, rows, columns, in}, 4);
  const ops::Convolution convolution(test::there(w), test::there(b));
  Tensor all = Tensor::zeros({1, rows, columns, out}, GetParam(), test_device());
  convolution.run(there(whole(x)), there(whole(earlier)), 1, {0, rows, 0, columns}, all,
                  Tiles::all);
  // Rows [18, 30), with one halo row above and below.
  const ImageBox own{18, 12, 0, columns};
  Image part{rows, columns, {}}, before = part;
  for (const ImageBox& box : {own, ImageBox{17, 1, 0, columns}, ImageBox{30, 1, 0, columns}}) {
    part.pieces.push_back(piece(x, box));
    before.pieces.push_back(piece(earlier, box));
  }
  Tensor y = Tensor::zeros({1, own.rows, columns, out}, GetParam(), test_device());
  convolution.run(there(part), there(before), 1, own, y, Tiles::inner);
  convolution.run(there(part), there(before), 1, own, y, Tiles::outer);
  EXPECT_TRUE(same_bits(back(y), piece(back(all), own).values));
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
