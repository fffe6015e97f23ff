// Compares the 16-bit types with their definition, sign · 2^(exponent − bias) · (1 + fraction), for
// all bit patterns.
#include "tensor/dtype.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace reelmesh {
namespace {

struct Format {
  int exponent_bits, fraction_bits;
};
constexpr Format bfloat16{8, 7};
constexpr Format float16{5, 10};

/// The value of a bit pattern by the definition; exact in double.
double decoded(std::uint32_t bits, Format format) {
  const int max = (1 << format.exponent_bits) - 1;
  const int bias = max / 2;
  const double fraction =
      std::ldexp(bits & ((1U << format.fraction_bits) - 1), -format.fraction_bits);
  const int exponent = static_cast<int>(bits >> format.fraction_bits) & max;
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  if (exponent == max) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, exponent - bias);
}

template <class T>
T from_bits(std::uint32_t bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

template <class T>
void check_widening(Format format) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const double expected = decoded(bits, format);
    const auto found = static_cast<float>(from_bits<T>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(T(found)))) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(found), expected) << bits;
      ASSERT_EQ(std::signbit(found), std::signbit(expected)) << bits;
      ASSERT_EQ(T(found).bits, bits) << "there and back";
    }
  }
}

/// For each pair of neighbouring values: the midpoint is rounded to the even one, other values to
/// the nearer one. The last pair is the largest finite value and infinity, at one step further.
template <class T>
void check_rounding(Format format) {
  const std::uint32_t infinity = ((1U << format.exponent_bits) - 1) << format.fraction_bits;
  for (std::uint32_t low = 0; low < infinity; ++low) {
    const double a = decoded(low, format);
    const double step =
        low + 1 < infinity ? decoded(low + 1, format) - a : a - decoded(low - 1, format);
    const auto middle = static_cast<float>(a + step / 2);
    ASSERT_EQ(static_cast<double>(middle), a + step / 2) << "the midpoint is exact in float";
    const std::uint32_t even = low % 2 == 0 ? low : low + 1;
    ASSERT_EQ(T(middle).bits, even) << low;
    ASSERT_EQ(T(-middle).bits, even | 0x8000U) << low;
    ASSERT_EQ(T(std::nextafter(middle, 0.0F)).bits, low) << low;
    ASSERT_EQ(T(std::nextafter(middle, std::numeric_limits<float>::infinity())).bits, low + 1)
        << low;
  }
}

TEST(BFloat16, WidensEveryPattern) { check_widening<BFloat16>(bfloat16); }
TEST(Float16, WidensEveryPattern) { check_widening<Float16>(float16); }
TEST(BFloat16, RoundsToNearestEven) { check_rounding<BFloat16>(bfloat16); }
TEST(Float16, RoundsToNearestEven) { check_rounding<Float16>(float16); }

TEST(Float16, NumbersBeyondItsRangeBecomeInfinity) {
  EXPECT_EQ(Float16(65519.0F).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(Float16(1e30F).bits, 0x7c00);
  EXPECT_EQ(Float16(-1e30F).bits, 0xfc00);
  EXPECT_EQ(Float16(1e-30F).bits, 0);
  EXPECT_EQ(Float16(-1e-30F).bits, 0x8000);
}

TEST(DType, HasSizesAndNames) {
  EXPECT_EQ(size_of(DType::float32), 4);
  EXPECT_EQ(size_of(DType::bfloat16), 2);
  EXPECT_EQ(size_of(DType::float16), 2);
  EXPECT_EQ(size_of(DType::int32), 4);
  EXPECT_EQ(size_of(DType::uint8), 1);
  EXPECT_EQ(name_of(DType::bfloat16), "bfloat16");
  EXPECT_EQ(dtype_of<Float16>(), DType::float16);
}

}  // namespace
}  // namespace reelmesh
