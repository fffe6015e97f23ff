#include "weights/convert.hpp"

#include <bit>
#include <cstring>
#include <type_traits>

#include "tensor/tensor.hpp"

namespace reelmesh {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data are little-endian");

/// As Float16's conversion, in a form that compilers vectorise: no branch, and no arithmetic on
/// subnormal floats, which is slow.
float widen(Float16 half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000U) << 16;
  const std::uint32_t rest = static_cast<std::uint32_t>(half.bits & 0x7fffU) << 13;
  const std::uint32_t normal = rest + (112U << 23);          // new exponent bias
  const std::uint32_t special = rest + (224U << 23);         // infinity and nan
  constexpr float least = std::bit_cast<float>(113U << 23);  // 2^-14
  const auto subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest + (113U << 23)) - least);
  const std::uint32_t magnitude =
      rest >= 0x0f800000U ? special : (rest < 0x00800000U ? subnormal : normal);
  return std::bit_cast<float>(sign | magnitude);
}
float widen(BFloat16 x) { return static_cast<float>(x); }
float widen(float x) { return x; }

template <class From, class Into>
void convert_each(const std::byte* __restrict source, Into* __restrict target, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, source + i * static_cast<std::int64_t>(sizeof(From)), sizeof(From));
    target[i] = static_cast<Into>(widen(value));
  }
}

}  // namespace

void convert(const std::byte* source, DType from, void* target, DType into, std::int64_t count) {
  if (count == 0) return;
  if (from == into) {
    std::memcpy(target, source, static_cast<std::size_t>(count * size_of(from)));
    return;
  }
  visit_float(from, [&](auto f) {
    visit_float(into, [&](auto t) {
      convert_each<decltype(f)>(source, static_cast<decltype(t)*>(target), count);
    });
  });
}

}  // namespace reelmesh
