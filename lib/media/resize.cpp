#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "base/error.hpp"
#include "media/image.hpp"

namespace reelmesh::media {
namespace {

constexpr int precision = 22;  // bits after the point

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) {
  constexpr double lobes = 3;
  return x >= -lobes && x < lobes ? sinc(x) * sinc(x / lobes) : 0;
}

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

struct Kernel {
  double (*weight)(double x);
  double support;  // beyond it the weight is 0
};
constexpr Kernel lanczos_kernel{lanczos, 3}, bicubic_kernel{bicubic, 2};

/// The pixels of an axis that make one new pixel, and their weights.
struct Window {
  std::int64_t begin = 0;
  std::vector<std::int32_t> weights;  // fixed point
};

// The windows of all new pixels of an axis. As Pillow's C code: the same order of operations in
// double, and halves are rounded away from zero.
std::vector<Window> windows(const Kernel& kernel, std::int64_t from, std::int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double stretch = std::max(scale, 1.0);
  const double support = kernel.support * stretch;
  const double inverse = 1.0 / stretch;
  std::vector<Window> out(static_cast<std::size_t>(to));
  std::vector<double> weights;
  for (std::int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto begin = std::max(static_cast<std::int64_t>(center - support + 0.5), std::int64_t{0});
    const auto end = std::min(static_cast<std::int64_t>(center + support + 0.5), from);
    weights.clear();
    double sum = 0;
    for (std::int64_t x = begin; x < end; ++x) {
      weights.push_back(kernel.weight((static_cast<double>(x) - center + 0.5) * inverse));
      sum += weights.back();
    }
    Window& window = out[static_cast<std::size_t>(i)];
    window.begin = begin;
    for (const double weight : weights) {
      const double fixed = (sum != 0 ? weight / sum : weight) * (1 << precision);
      window.weights.push_back(static_cast<std::int32_t>(fixed < 0 ? fixed - 0.5 : fixed + 0.5));
    }
  }
  return out;
}

std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> precision, 0, 255));
}

constexpr std::int32_t half = 1 << (precision - 1);

// [row, column, 3] → [row, width, 3]
Tensor resize_columns(const Kernel& kernel, const Tensor& image, std::int64_t width) {
  const std::vector<Window> columns = windows(kernel, image.shape(1), width);
  Tensor out = Tensor::empty({image.shape(0), width, 3}, DType::uint8);
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < image.shape(0); ++row) {
    const auto* from = image.data<std::uint8_t>() + row * image.shape(1) * 3;
    auto* to = out.data<std::uint8_t>() + row * width * 3;
    for (const Window& window : columns) {
      const auto* pixel = from + window.begin * 3;
      std::int32_t red = half, green = half, blue = half;
      for (const std::int32_t weight : window.weights) {
        red += pixel[0] * weight, green += pixel[1] * weight, blue += pixel[2] * weight;
        pixel += 3;
      }
      to[0] = rounded(red), to[1] = rounded(green), to[2] = rounded(blue);
      to += 3;
    }
  }
  return out;
}

// [row, column, 3] → [height, column, 3]
Tensor resize_rows(const Kernel& kernel, const Tensor& image, std::int64_t height) {
  const std::vector<Window> rows = windows(kernel, image.shape(0), height);
  const std::int64_t bytes = image.shape(1) * 3;  // of a row
  Tensor out = Tensor::empty({height, image.shape(1), 3}, DType::uint8);
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < height; ++row) {
    const Window& window = rows[static_cast<std::size_t>(row)];
    auto* to = out.data<std::uint8_t>() + row * bytes;
    // Sums of some columns at a time stay in the cache.
    constexpr std::int64_t block = 256;
    for (std::int64_t begin = 0; begin < bytes; begin += block) {
      const std::int64_t count = std::min(block, bytes - begin);
      std::int32_t sums[block];
      std::fill_n(sums, count, half);
      const auto* from = image.data<std::uint8_t>() + window.begin * bytes + begin;
      for (const std::int32_t weight : window.weights) {
        for (std::int64_t i = 0; i < count; ++i) sums[i] += from[i] * weight;
        from += bytes;
      }
      for (std::int64_t i = 0; i < count; ++i) to[begin + i] = rounded(sums[i]);
    }
  }
  return out;
}

Tensor resize(const Kernel& kernel, const Tensor& image, std::int64_t height, std::int64_t width) {
  expect(
      image.shape().size() == 3 && image.shape(2) == 3 && !image.empty() && height > 0 && width > 0,
      "resizing of {} to {} x {}", image.shape(), height, width);
  Tensor out = image.shape(1) == width ? image : resize_columns(kernel, image, width);
  return out.shape(0) == height ? out : resize_rows(kernel, out, height);
}

}  // namespace

Tensor resize_lanczos(const Tensor& image, std::int64_t height, std::int64_t width) {
  return resize(lanczos_kernel, image, height, width);
}

Tensor resize_bicubic(const Tensor& image, std::int64_t height, std::int64_t width) {
  return resize(bicubic_kernel, image, height, width);
}

}  // namespace reelmesh::media
