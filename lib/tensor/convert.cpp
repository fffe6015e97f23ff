#include "tensor/convert.hpp"

#include <bit>
#include <cstddef>
#include <cstring>

#include "base/clones.hpp"
#include "base/error.hpp"
#include "tensor/narrow.hpp"

namespace reelmesh {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data are little-endian");

// As ?:, but never a branch, which would prevent vectorisation.
inline std::uint32_t choose(bool condition, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

// As Float16's conversions, in forms that compilers vectorise: no branch, and no arithmetic on
// subnormal floats, which is slow.
inline float widen(Float16 half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000U) << 16;
  const std::uint32_t rest = static_cast<std::uint32_t>(half.bits & 0x7fffU) << 13;
  const std::uint32_t normal = rest + (112U << 23);               // new exponent bias
  const std::uint32_t special = rest + (224U << 23);              // infinity and nan
  constexpr float min_normal = std::bit_cast<float>(113U << 23);  // 2^-14
  const auto subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest + (113U << 23)) - min_normal);
  std::uint32_t magnitude = choose(rest < 0x00800000U, subnormal, normal);
  magnitude = choose(rest >= 0x0f800000U, special, magnitude);
  return std::bit_cast<float>(sign | magnitude);
}
inline float widen(BFloat16 x) { return static_cast<float>(x); }
inline float widen(float x) { return x; }

template <class Into>
inline Into narrow(float x) {
  return Into(x);
}
template <>
inline BFloat16 narrow(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
  BFloat16 out;
  out.bits = static_cast<std::uint16_t>(choose((u & 0x7fffffffU) > 0x7f800000U, 0x7fc0U, rounded));
  return out;
}
template <>
inline Float16 narrow(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = u & 0x7fffffffU;
  // Below the smallest normal number, adding 0.5 aligns the mantissa; larger values are set to 0.
  const std::uint32_t small = choose(magnitude < 0x38800000U, magnitude, 0);
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(small) + 0.5F) - 0x3f000000U;
  const std::uint32_t normal = (magnitude + 0xc8000fffU + ((magnitude >> 13) & 1U)) >> 13;
  std::uint32_t half = choose(magnitude < 0x38800000U, subnormal, normal);
  half = choose(magnitude >= 0x47800000U, 0x7c00U, half);  // 2^16 and above: infinity
  half = choose(magnitude > 0x7f800000U, 0x7e00U, half);   // nan
  Float16 out;
  out.bits = static_cast<std::uint16_t>((u >> 16 & 0x8000U) | half);
  return out;
}

template <class From, class Into>
[[gnu::always_inline]] inline void convert_in_turn(const void* __restrict source,
                                                   void* __restrict target, std::int64_t count) {
  const auto* from = static_cast<const std::byte*>(source);
  auto* into = static_cast<Into*>(target);
  for (std::int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof(From)), sizeof(From));
    into[i] = narrow<Into>(widen(value));
  }
}

template <class From, class Into>
inline void convert_each(const void* __restrict source, void* __restrict target,
                         std::int64_t count) {
  convert_in_turn<From, Into>(source, target, count);
}
// In vectors of 8: GCC turns the loop above into twice as many instructions.
template <>
inline void convert_each<float, BFloat16>(const void* __restrict source, void* __restrict target,
                                          std::int64_t count) {
  constexpr std::int64_t width = 8, bytes = sizeof(float);
  using Floats [[gnu::vector_size(width * bytes)]] = float;
  using Words [[gnu::vector_size(width * bytes)]] = std::uint32_t;
  using Halves [[gnu::vector_size(width * sizeof(BFloat16))]] = std::uint16_t;
  const auto* from = static_cast<const std::byte*>(source);
  auto* into = static_cast<BFloat16*>(target);
  const std::int64_t even = count / width * width;
  for (std::int64_t i = 0; i < even; i += width) {
    Floats x;
    std::memcpy(&x, from + i * bytes, sizeof(x));
    Words bits;
    std::memcpy(&bits, &x, sizeof(bits));
    Words rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    rounded = x == x ? rounded : Words{} + 0x7fc0U;
    const Halves halves = __builtin_convertvector(rounded, Halves);
    std::memcpy(static_cast<void*>(into + i), &halves, sizeof(halves));
  }
  convert_in_turn<float, BFloat16>(from + even * bytes, into + even, count - even);
}

// One function for each pair of types, because templates cannot have target clones.
#define REELMESH_CONVERT(name, From, Into)                                          \
  REELMESH_CLONES void name(const void* source, void* target, std::int64_t count) { \
    convert_each<From, Into>(source, target, count);                                \
  }
REELMESH_CONVERT(float_to_bfloat, float, BFloat16)
REELMESH_CONVERT(float_to_half, float, Float16)
REELMESH_CONVERT(bfloat_to_float, BFloat16, float)
REELMESH_CONVERT(bfloat_to_half, BFloat16, Float16)
REELMESH_CONVERT(half_to_float, Float16, float)
REELMESH_CONVERT(half_to_bfloat, Float16, BFloat16)
#undef REELMESH_CONVERT

}  // namespace

void convert(const void* source, DType from, void* target, DType into, std::int64_t count) {
  if (count == 0) return;
  if (from == into) {
    std::memcpy(target, source, static_cast<std::size_t>(count * size_of(from)));
    return;
  }
  const auto unknown = [&] {
    fail(Status::internal, "{} converted to {}", name_of(from), name_of(into));
  };
  switch (from) {
    case DType::float32:
      if (into == DType::bfloat16)
        return narrow_by_instruction(source, target, count, float_to_bfloat);
      if (into == DType::float16) return float_to_half(source, target, count);
      return unknown();
    case DType::bfloat16:
      if (into == DType::float32) return bfloat_to_float(source, target, count);
      if (into == DType::float16) return bfloat_to_half(source, target, count);
      return unknown();
    case DType::float16:
      if (into == DType::float32) return half_to_float(source, target, count);
      if (into == DType::bfloat16) return half_to_bfloat(source, target, count);
      return unknown();
    default:
      return unknown();
  }
}

}  // namespace reelmesh
