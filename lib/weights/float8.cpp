#include "weights/float8.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/convert.hpp"

namespace reelmesh {
namespace {

using Values = std::array<float, 256>;

// Sign, 4 bits of exponent with the bias 7, 3 of mantissa.
float e4m3(int bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                  : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if (exponent == 15 && mantissa == 7) magnitude = std::numeric_limits<float>::quiet_NaN();
  return (bits & 128) != 0 ? -magnitude : magnitude;
}

// The upper half of a float16.
float e5m2(int bits) {
  Float16 half;
  half.bits = static_cast<std::uint16_t>(bits << 8);
  return static_cast<float>(half);
}

Values values_of(float (*value)(int bits)) {
  Values values{};
  for (int bits = 0; bits < 256; ++bits) values[static_cast<std::size_t>(bits)] = value(bits);
  return values;
}

}  // namespace

const Values* float8_values(std::string_view dtype) {
  static const Values of_e4m3 = values_of(e4m3), of_e5m2 = values_of(e5m2);
  if (dtype == "F8_E4M3") return &of_e4m3;
  if (dtype == "F8_E5M2") return &of_e5m2;
  return nullptr;
}

void convert_float8(const Values& values, const std::byte* source, void* target, DType into,
                    std::int64_t count) {
  constexpr std::int64_t some = 1024;
  std::array<float, some> wide;
  for (std::int64_t first = 0; first < count; first += some) {
    const std::int64_t n = std::min(some, count - first);
    for (std::int64_t i = 0; i < n; ++i) {
      wide[static_cast<std::size_t>(i)] = values[std::to_integer<std::size_t>(source[first + i])];
    }
    convert(wide.data(), DType::float32, static_cast<std::byte*>(target) + first * size_of(into),
            into, n);
  }
}

}  // namespace reelmesh
