#pragma once
#include <array>
#include <cstddef>
#include <string_view>

#include "tensor/dtype.hpp"

namespace reelmesh {

/// The values of the 256 bytes of a type of 8 bits: of "F8_E4M3" those of PyTorch's float8_e4m3fn
/// (no infinities; two NaNs), of "F8_E5M2" those of float8_e5m2. nullptr for other types. All are
/// exact in bfloat16.
const std::array<float, 256>* float8_values(std::string_view dtype);

/// Converts `count` bytes, which are numbers of values, rounding to nearest even.
void convert_float8(const std::array<float, 256>& values, const std::byte* source, void* target,
                    DType into, std::int64_t count);

}  // namespace reelmesh
