#pragma once
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// The values of the 256 bytes of a type of 8 bits.
using Float8Values = std::array<float, 256>;

/// Of "F8_E4M3" those of PyTorch's float8_e4m3fn (no infinities; two NaNs), of "F8_E5M2" those of
/// float8_e5m2. nullptr for other types. All are exact in bfloat16.
const Float8Values* float8_values(std::string_view dtype);

/// Converts `count` bytes, which are numbers of values, and multiplies them in float32 by a factor;
/// rounds to nearest even.
void convert_float8(const Float8Values& values, float factor, const std::byte* source, void* target,
                    DType into, std::int64_t count);

/// The rows of a matrix as a checkpoint stores them, in 8 bits.
struct Float8Rows {
  const Float8Values* values = nullptr;
  std::vector<float> factors;  ///< of each row; empty in a dry run
  /// Writes rows [first, first + count), one after the other. Called from several threads at once.
  std::function<void(std::int64_t first, std::int64_t count, std::byte* into)> read;
};

/// The same conversion of a matrix. bytes: uint8 [row, column]; values: float32 [256]; factors:
/// float32 [row]; all on one device → [row, column] of a floating type.
Tensor expand_float8(const Tensor& bytes, const Tensor& values, const Tensor& factors, DType dtype);

}  // namespace reelmesh
