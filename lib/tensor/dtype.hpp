#pragma once
// Element types, with conversions that round to nearest even as PyTorch does.
#include <bit>
#include <cstdint>
#include <string_view>

namespace reelmesh {

enum class DType { float32, bfloat16, float16, int32, uint8 };

std::int64_t size_of(DType dtype);
std::string_view name_of(DType dtype);

struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float x) {
    const auto u = std::bit_cast<std::uint32_t>(x);
    const bool nan = (u & 0x7fffffffU) > 0x7f800000U;
    bits = static_cast<std::uint16_t>(nan ? 0x7fc0U : (u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

struct Float16 {
  std::uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float x);
  explicit operator float() const;
};

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::float32;
}
template <>
constexpr DType dtype_of<BFloat16>() {
  return DType::bfloat16;
}
template <>
constexpr DType dtype_of<Float16>() {
  return DType::float16;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::int32;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::uint8;
}

}  // namespace reelmesh
