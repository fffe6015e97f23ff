#include "tensor/float8.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/convert.hpp"
#include "tensor/cuda/runtime.hpp"
#include "tensor/dispatch.hpp"

namespace reelmesh {
namespace {

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

Float8Values values_of(float (*value)(int bits)) {
  Float8Values values{};
  for (int bits = 0; bits < 256; ++bits) values[static_cast<std::size_t>(bits)] = value(bits);
  return values;
}

}  // namespace

const Float8Values* float8_values(std::string_view dtype) {
  static const Float8Values of_e4m3 = values_of(e4m3), of_e5m2 = values_of(e5m2);
  if (dtype == "F8_E4M3") return &of_e4m3;
  if (dtype == "F8_E5M2") return &of_e5m2;
  return nullptr;
}

void convert_float8(const Float8Values& values, float factor, const std::byte* source, void* target,
                    DType into, std::int64_t count) {
  constexpr std::int64_t some = 1024;
  std::array<float, some> wide;
  for (std::int64_t first = 0; first < count; first += some) {
    const std::int64_t n = std::min(some, count - first);
    for (std::int64_t i = 0; i < n; ++i) {
      wide[static_cast<std::size_t>(i)] =
          values[std::to_integer<std::size_t>(source[first + i])] * factor;
    }
    convert(wide.data(), DType::float32, static_cast<std::byte*>(target) + first * size_of(into),
            into, n);
  }
}

Tensor expand_float8(const Tensor& bytes, const Tensor& values, const Tensor& factors,
                     DType dtype) {
  expect(bytes.dtype() == DType::uint8 && values.numel() == std::ssize(Float8Values{}) &&
             factors.numel() == bytes.shape(0),
         "{} numbers of 8 bits with {} values and {} factors", bytes.shape(), values.numel(),
         factors.numel());
  const Device device = bytes.device();
  const std::int64_t rows = bytes.shape(0), columns = bytes.shape(1);
  Tensor out = Tensor::empty(bytes.shape(), dtype, device);
  if (out.numel() == 0) return out;
  dispatch(
      device, [&] { cuda::expand_float8(device, bytes, values, factors, out); },
      [&] {
        Float8Values table;
        std::copy_n(values.data<float>(), table.size(), table.begin());
        for (std::int64_t row = 0; row < rows; ++row) {
          convert_float8(table, factors.data<float>()[row],
                         static_cast<const std::byte*>(bytes.raw()) + row * columns,
                         out.rows(row, 1).raw(), dtype, columns);
        }
      });
  return out;
}

}  // namespace reelmesh
