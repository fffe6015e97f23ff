#include "emulated_gpu/product.hpp"

#include <algorithm>
#include <cstring>

#include "base/clones.hpp"

namespace reelmesh::emulated {
namespace {

// Half of the width: GCC takes vectors of AVX-512's size apart, number by number, for AVX2.
constexpr std::int64_t lanes = RightOperand::width / 2;
using Half = float __attribute__((vector_size(lanes * sizeof(float))));

// Computes up to 4 rows (`count`) of one block of `width` outputs, `wanted` of which are stored.
REELMESH_CLONES void rows_of_block(const float* x, std::int64_t inner, int count, const float* w,
                                   float* y, std::int64_t out, std::int64_t wanted) {
  Half sums[4][2] = {};
  const float* row[4];
  for (int r = 0; r < 4; ++r) row[r] = x + std::min(r, count - 1) * inner;
  for (std::int64_t first = 0; first < inner; first += RightOperand::depth) {
    Half part[4][2] = {};
    for (std::int64_t k = first; k < std::min(inner, first + RightOperand::depth); ++k) {
      Half numbers[2];
      std::memcpy(&numbers, w + k * RightOperand::width, sizeof(numbers));
      for (int r = 0; r < 4; ++r) {
        part[r][0] += row[r][k] * numbers[0];
        part[r][1] += row[r][k] * numbers[1];
      }
    }
    for (int r = 0; r < 4; ++r) {
      sums[r][0] += part[r][0];
      sums[r][1] += part[r][1];
    }
  }
  for (int r = 0; r < count; ++r) {
    std::memcpy(y + r * out, &sums[r], static_cast<std::size_t>(wanted) * sizeof(float));
  }
}

}  // namespace

RightOperand::RightOperand(std::int64_t inner, std::int64_t out)
    : inner_(inner),
      out_(out),
      numbers_(static_cast<std::size_t>((out + width - 1) / width * width * inner)) {}

void RightOperand::multiply(const float* x, std::int64_t rows, float* y) const {
  for (std::int64_t first = 0; first < out_; first += width) {
    for (std::int64_t row = 0; row < rows; row += 4) {
      rows_of_block(x + row * inner_, inner_,
                    static_cast<int>(std::min<std::int64_t>(4, rows - row)),
                    numbers_.data() + first * inner_, y + row * out_ + first, out_,
                    std::min(width, out_ - first));
    }
  }
}

}  // namespace reelmesh::emulated
