// Convolutions of CogVideoX's decoder at full resolution.
#include "ops/convolution.hpp"

#include "ops/cuda/truth/truth.hpp"

namespace reelmesh::test {
namespace {

using ops::RowWindow;

struct Case {
  DType dtype;
  std::int64_t in, out, kt;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : half_types) {
    all.push_back({dtype, size(16, 128), size(16, 128), 3});
    all.push_back({dtype, size(16, 256), size(24, 256), 1});  // after the last upsampling
  }
  return all;
}

class ConvolutionTruth : public TruthTest<Case> {
 protected:
  static constexpr std::int64_t frames = 2;
  static std::int64_t rows() { return size(20, 480); }
  static std::int64_t columns() { return size(36, 720); }

  // Sums have a standard deviation of 1, the bias of 0.1.
  void SetUp() override {
    TruthTest::SetUp();
    if (IsSkipped()) return;
    const auto& [dtype, in, out, kt] = GetParam();
    const float scale = 1.0F / std::sqrt(static_cast<float>(in * kt * 9));
    w = repeated_random_tensor({out, in, kt, 3, 3}, 1, dtype, scale, test_device());
    b = repeated_random_tensor({out}, 2, dtype, 0.1F, test_device());
    all = repeated_random_tensor({kt - 1 + frames, rows(), columns(), in}, 3, dtype, 1.0F,
                                 test_device());
  }
  // All channels of a pixel in float64.
  Tensor exact(std::int64_t frame, std::int64_t row, std::int64_t column) const {
    const auto& [dtype, in, out, kt] = GetParam();
    const Tensor weight = back(w).to(DType::float32), bias = back(b).to(DType::float32);
    std::vector<double> sums(bias.span<float>().begin(), bias.span<float>().end());
    for (std::int64_t t = 0; t < kt; ++t) {
      for (std::int64_t i = 0; i < 3; ++i) {
        for (std::int64_t j = 0; j < 3; ++j) {
          const std::int64_t r = row + i - 1, c = column + j - 1;
          if (r < 0 || r >= rows() || c < 0 || c >= columns()) continue;
          const std::int64_t pixel = ((frame + t) * rows() + r) * columns() + c;
          const Tensor x =
              back(all.reshape({all.numel() / in, in}).rows(pixel, 1)).to(DType::float32);
          for (std::int64_t o = 0; o < out; ++o) {
            for (std::int64_t k = 0; k < in; ++k) {
              sums[static_cast<std::size_t>(o)] +=
                  double(x.data<float>()[k]) *
                  weight.data<float>()[((o * in + k) * kt + t) * 9 + i * 3 + j];
            }
          }
        }
      }
    }
    Tensor result = Tensor::empty({out}, DType::float32);
    std::copy(sums.begin(), sums.end(), result.data<float>());
    return result;
  }
  Tensor convolve(const ops::Convolution& convolution, const Tensor& x) const {
    const RowWindow whole{0, rows(), rows()};
    const std::int64_t before = GetParam().kt - 1;
    return convolution(x.rows(before, frames), whole, whole,
                       before > 0 ? x.rows(0, before) : Tensor());
  }

  Tensor w, b, all;  // all: the frames before the first, then the frames
};
INSTANTIATE_TEST_SUITE_P(Of, ConvolutionTruth, testing::ValuesIn(cases()), [](const auto& of) {
  return fmt::format("{}_{}_to_{}_of_{}_frames", name_of(of.param.dtype), of.param.in, of.param.out,
                     of.param.kt);
});

TEST_P(ConvolutionTruth, AgreesWithFloat32) {
  const auto wide = [](const Tensor& some) { return some.to(DType::float32); };
  const Tensor reference = convolve(ops::Convolution(wide(w), wide(b)), wide(all));
  const std::int64_t out = GetParam().out;
  // Corners, edges of tiles (16 × 32 pixels), places within one.
  for (const auto& [row, column] : {std::pair<std::int64_t, std::int64_t>{0, 0},
                                    {0, columns() - 1},
                                    {rows() - 1, 0},
                                    {rows() - 1, columns() - 1},
                                    {15, 31},
                                    {16, 32},
                                    {rows() / 2 + 1, columns() / 2 + 5}}) {
    for (std::int64_t frame = 0; frame < frames; ++frame) {
      const std::int64_t pixel = (frame * rows() + row) * columns() + column;
      const Tensor found = back(reference.reshape({reference.numel() / out, out}).rows(pixel, 1));
      EXPECT_LE(relative_error(found, exact(frame, row, column)), float32_tolerance)
          << "frame " << frame << ", row " << row << ", column " << column;
    }
  }
  // With u = unit_roundoff: the sum is rounded, then the sum with the bias. So |error| ≤
  // u·(|result|
  // + |bias| + |result|), and relative to the largest result, ten times the largest bias: at most
  // 2.1u. Rounding errors are distributed evenly over ±u of the power of two, so the rms is at most
  // √(2/3)·u of that of the results.
  const double u = unit_roundoff(GetParam().dtype);
  expect_errors("convolution", errors(convolve(ops::Convolution(w, b), all), reference),
                {2.2 * u, u});
}

// What ranks compute of a whole: some of the rows.
TEST_P(ConvolutionTruth, RowsHaveTheBitsOfTheWhole) {
  const ops::Convolution convolution(w, b);
  const std::int64_t in = GetParam().in, out = GetParam().out, n = rows();
  const Tensor x = all.rows(0, 1);
  const Tensor whole = back(convolution(x, {0, n, n}, {0, n, n}));
  const auto part = [&](const Tensor& image, std::int64_t first, std::int64_t count,
                        std::int64_t channels) {
    return image.reshape({n, columns(), channels})
        .rows(first, count)
        .reshape({1, count, columns(), channels});
  };
  for (const auto& [first, count] :
       {std::pair<std::int64_t, std::int64_t>{0, n / 4}, {n / 4 + 1, n / 3}, {n - 1, 1}}) {
    const std::int64_t before = std::max<std::int64_t>(0, first - 1);
    const std::int64_t after = std::min(n, first + count + 1);
    const Tensor some = convolution(part(x, before, after - before, in),
                                    {before, after - before, n}, {first, count, n});
    EXPECT_TRUE(same_bits(back(some), part(whole, first, count, out).clone()))
        << count << " rows from " << first << " on";
  }
}

}  // namespace
}  // namespace reelmesh::test
