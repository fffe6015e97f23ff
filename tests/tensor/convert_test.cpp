#include "tensor/convert.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh {
namespace {

/// All 16-bit patterns, starting at an odd address.
class Patterns {
 public:
  Patterns() : bytes_(2 * 65536 + 1) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      std::memcpy(bytes_.data() + 1 + std::size_t{2} * bits, &half, 2);
    }
  }
  const std::byte* data() const { return bytes_.data() + 1; }

 private:
  std::vector<std::byte> bytes_;
};

template <class T>
void check_all_patterns() {
  const Patterns patterns;
  std::vector<float> found(65536);
  convert(patterns.data(), dtype_of<T>(), found.data(), DType::float32, 65536);
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    T value;
    value.bits = static_cast<std::uint16_t>(bits);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(found[bits]),
              std::bit_cast<std::uint32_t>(static_cast<float>(value)))
        << bits;
  }
}

TEST(Convert, WidensEveryBFloat16) { check_all_patterns<BFloat16>(); }
TEST(Convert, WidensEveryFloat16) { check_all_patterns<Float16>(); }

TEST(Convert, NarrowsFromMisalignedFloats) {
  const std::vector<float> values = {1.0F, -0.0F, 1.00390625F, 1.01171875F, 65520.0F, 1e-8F, 3e38F};
  std::vector<std::byte> bytes(values.size() * 4 + 3);
  std::memcpy(bytes.data() + 3, values.data(), values.size() * 4);
  const auto n = static_cast<std::int64_t>(values.size());
  std::vector<BFloat16> brain(values.size());
  std::vector<Float16> half(values.size());
  std::vector<float> same(values.size());
  convert(bytes.data() + 3, DType::float32, brain.data(), DType::bfloat16, n);
  convert(bytes.data() + 3, DType::float32, half.data(), DType::float16, n);
  convert(bytes.data() + 3, DType::float32, same.data(), DType::float32, n);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(brain[i].bits, BFloat16(values[i]).bits) << values[i];
    EXPECT_EQ(half[i].bits, Float16(values[i]).bits) << values[i];
  }
  EXPECT_EQ(std::memcmp(same.data(), values.data(), values.size() * 4), 0);
  EXPECT_EQ(brain[2].bits, 0x3f80) << "half way, down to the even one";
  EXPECT_EQ(brain[3].bits, 0x3f82) << "half way, up to the even one";
}

// Floats from the whole range, with ties, subnormal numbers, infinities and NaNs.
TEST(Convert, NarrowsAsTheScalarTypesDo) {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < 1ULL << 32; bits += 4093) {
    for (const std::uint32_t low : {0U, 0x1000U, 0x8000U}) {
      values.push_back(std::bit_cast<float>((static_cast<std::uint32_t>(bits) & ~0xffffU) | low));
    }
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  const auto n = static_cast<std::int64_t>(values.size());
  std::vector<BFloat16> brain(values.size());
  std::vector<Float16> half(values.size());
  // All together, and in parts that are too short for tensor/narrow.hpp.
  for (const std::int64_t part : {n, std::int64_t{24}}) {
    for (std::int64_t first = 0; first < n; first += part) {
      const std::int64_t count = std::min(part, n - first);
      convert(values.data() + first, brain.data() + first, count);
      convert(values.data() + first, half.data() + first, count);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(brain[i].bits, BFloat16(values[i]).bits) << values[i] << ", parts of " << part;
      ASSERT_EQ(half[i].bits, Float16(values[i]).bits) << values[i] << ", parts of " << part;
    }
  }
}

TEST(Convert, BetweenTheTwo16BitTypes) {
  const Patterns patterns;
  std::vector<BFloat16> found(65536);
  convert(patterns.data(), DType::float16, found.data(), DType::bfloat16, 65536);
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    Float16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    ASSERT_EQ(found[bits].bits, BFloat16(static_cast<float>(value)).bits) << bits;
  }
}

}  // namespace
}  // namespace reelmesh
