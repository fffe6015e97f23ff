#include "tensor/dtype.hpp"

namespace reelmesh {

std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::bfloat16:
    case DType::float16:
      return 2;
    case DType::uint8:
      return 1;
  }
  return 0;
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float16:
      return "float16";
    case DType::int32:
      return "int32";
    case DType::uint8:
      return "uint8";
  }
  return "?";
}

Float16::Float16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (u >> 16) & 0x8000U;
  std::uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {  // nan
    bits = static_cast<std::uint16_t>(sign | 0x7e00U);
  } else if (magnitude >= 0x47800000U) {  // ≥ 2^16: infinity
    bits = static_cast<std::uint16_t>(sign | 0x7c00U);
  } else if (magnitude < 0x38800000U) {  // below the normal range: adding 0.5 aligns the mantissa
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  } else {
    magnitude += 0xc8000fffU + ((magnitude >> 13) & 1U);  // new exponent bias, round half to even
    bits = static_cast<std::uint16_t>(sign | (magnitude >> 13));
  }
}

Float16::operator float() const {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t rest = static_cast<std::uint32_t>(bits & 0x7fffU) << 13;
  if (rest >= 0x0f800000U) return std::bit_cast<float>(sign | (rest + 0x70000000U));  // inf, nan
  // Scaling by 2^112 corrects the bias and normalises subnormal numbers.
  const float value = std::bit_cast<float>(rest) * 0x1p112F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

}  // namespace reelmesh
