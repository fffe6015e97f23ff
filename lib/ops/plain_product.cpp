#include "ops/plain_product.hpp"

#include <cmath>

#include "base/clones.hpp"

namespace reelmesh::ops {
namespace {

constexpr std::int64_t lanes = 16, height = 4;

// Rows at once, and `width` columns, at most all lanes. src, weights and dst: the first of them.
template <std::int64_t rows>
[[gnu::always_inline]] inline void block(std::int64_t width, std::int64_t n, std::int64_t k,
                                         const float* src, std::int64_t stride,
                                         const float* weights, float* dst, bool adds) {
  float sums[rows][lanes] = {};
  for (std::int64_t i = 0; i < k; ++i, weights += n) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const float x = src[r * stride + i];
      if (width == lanes) {
        for (std::int64_t c = 0; c < lanes; ++c) sums[r][c] = std::fma(x, weights[c], sums[r][c]);
      } else {
        for (std::int64_t c = 0; c < width; ++c) sums[r][c] = std::fma(x, weights[c], sums[r][c]);
      }
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < width; ++c) {
      float& to = dst[r * n + c];
      to = adds ? to + sums[r][c] : sums[r][c];
    }
  }
}

}  // namespace

REELMESH_CLONES void plain_product(std::int64_t m, std::int64_t n, std::int64_t k, const float* src,
                                   std::int64_t stride, const float* weights, float* dst,
                                   bool adds) {
  for (std::int64_t column = 0; column < n; column += lanes) {
    const std::int64_t width = n - column < lanes ? n - column : lanes;
    std::int64_t row = 0;
    for (; row + height <= m; row += height) {
      block<height>(width, n, k, src + row * stride, stride, weights + column,
                    dst + row * n + column, adds);
    }
    for (; row < m; ++row) {
      block<1>(width, n, k, src + row * stride, stride, weights + column, dst + row * n + column,
               adds);
    }
  }
}

}  // namespace reelmesh::ops
