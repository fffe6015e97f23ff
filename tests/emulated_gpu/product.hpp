#pragma once
#include <cstdint>
#include <vector>

#include "tensor/dtype.hpp"

namespace reelmesh::emulated {

/// The right operand of matrix products in float32: w[inner][out].
class RightOperand {
 public:
  RightOperand(std::int64_t inner, std::int64_t out);
  float& at(std::int64_t k, std::int64_t o) {
    return numbers_[static_cast<std::size_t>((o / width * inner_ + k) * width + o % width)];
  }
  std::int64_t inner() const { return inner_; }
  std::int64_t out() const { return out_; }

  /// y[rows][out] = x[rows][inner]·w, both dense. Each element is summed in the order of `inner`,
  /// by partial sums of `depth` products.
  void multiply(const float* x, std::int64_t rows, float* y) const;

  static constexpr std::int64_t width = 16;  ///< elements computed together (SIMD)
  static constexpr std::int64_t depth = 16;  ///< k of a tensor core's mma for bfloat16

 private:
  std::int64_t inner_, out_;
  std::vector<float> numbers_;  // [out / width][inner][width], zero beyond out
};

}  // namespace reelmesh::emulated
