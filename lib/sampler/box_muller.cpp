#include "sampler/box_muller.hpp"

#include <bit>
#include <cmath>

#include "base/processor.hpp"

namespace reelmesh {
namespace {

// Everything below is inlined into one function per instruction set: a fused multiply-add becomes
// one instruction if the set has it, otherwise an (exact, slow) library call.
#define REELMESH_INLINE [[gnu::always_inline]] inline

constexpr std::int64_t block = box_muller_block, half = block / 2;
constexpr std::int64_t group = 16;            // blocks at a time
constexpr std::int64_t pairs = group * half;  // values in each of the two halves

REELMESH_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

/// Natural logarithm for normal x > 0 (Cephes logf).
REELMESH_INLINE float log_positive(float x) {
  // x = m·2^e with m in [√½, √2), by integer arithmetic, because a branch would prevent
  // vectorisation of the loop. m - 1 is exact.
  constexpr std::uint32_t root_half = 0x3f3504f3;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::int32_t exponent = static_cast<std::int32_t>(bits - root_half) >> 23;
  const float e = static_cast<float>(exponent);
  const float m = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(exponent) << 23)) - 1.0F;
  const float z = m * m;
  float y = 7.0376836292E-2F;
  y = fma(y, m, -1.1514610310E-1F);
  y = fma(y, m, 1.1676998740E-1F);
  y = fma(y, m, -1.2420140846E-1F);
  y = fma(y, m, 1.4249322787E-1F);
  y = fma(y, m, -1.6668057665E-1F);
  y = fma(y, m, 2.0000714765E-1F);
  y = fma(y, m, -2.4999993993E-1F);
  y = fma(y, m, 3.3333331174E-1F);
  y = y * m;
  y = fma(y, z, e * -2.12194440e-4F);
  y = fma(-z, 0.5F, y);
  return fma(e, 0.693359375F, m + y);
}

/// Sine and cosine for 0 ≤ x < 8192 (Cephes sinf, cosf).
REELMESH_INLINE void sine_cosine(float x, float& sine, float& cosine) {
  const std::int32_t octant = (static_cast<std::int32_t>(x * 1.27323954473516F) + 1) & ~1;
  const float j = static_cast<float>(octant);
  x = fma(j, -0.78515625F, x);
  x = fma(j, -2.4187564849853515625e-4F, x);
  x = fma(j, -3.77489497744594108e-8F, x);
  const float z = x * x;
  float c = fma(2.443315711809948e-5F, z, -1.388731625493765e-3F);
  c = fma(c, z, 4.166664568298827e-2F);
  c = c * z;
  c = fma(c, z, -(0.5F * z));
  c = c + 1.0F;
  float s = fma(-1.9515295891e-4F, z, 8.3321608736e-3F);
  s = fma(s, z, -1.6666654611e-1F);
  s = fma(s * z, x, x);
  const std::uint32_t swap = 0U - (static_cast<std::uint32_t>(octant >> 1) & 1U);
  const auto sine_sign = static_cast<std::uint32_t>(octant & 4) << 29;
  const auto cosine_sign = static_cast<std::uint32_t>(~(octant - 2) & 4) << 29;
  const auto s_bits = std::bit_cast<std::uint32_t>(s);
  const auto c_bits = std::bit_cast<std::uint32_t>(c);
  const std::uint32_t difference = (s_bits ^ c_bits) & swap;
  sine = std::bit_cast<float>(s_bits ^ difference ^ sine_sign);
  cosine = std::bit_cast<float>(c_bits ^ difference ^ cosine_sign);
}

REELMESH_INLINE void transform(float* values, std::int64_t blocks) {
  float square[pairs];  // of each radius
  float sine[pairs];
  float cosine[pairs];
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (std::int64_t j = 0; j < half; ++j) {
      square[b * half + j] = 1.0F - values[b * block + j];
      sine[b * half + j] = 6.2831855F * values[b * block + half + j];
    }
  }
  for (std::int64_t i = 0; i < blocks * half; ++i) {
    square[i] = -2.0F * log_positive(square[i]);
    sine_cosine(sine[i], sine[i], cosine[i]);
  }
  // The square root has its own loop: it may set errno, which prevents vectorisation.
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (std::int64_t j = 0; j < half; ++j) {
      const float radius = std::sqrt(square[b * half + j]);
      values[b * block + j] = radius * cosine[b * half + j];
      values[b * block + half + j] = radius * sine[b * half + j];
    }
  }
}

REELMESH_INLINE void transform_all(float* values, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + group * block <= count; i += group * block) transform(values + i, group);
  if (i < count) transform(values + i, (count - i) / block);
}

REELMESH_WITH_FMA void with_fma(float* values, std::int64_t count) { transform_all(values, count); }

}  // namespace

void box_muller_portable(float* values, std::int64_t count) { transform_all(values, count); }

void box_muller(float* values, std::int64_t count) {
  static const bool fused = has_fma();
  if (fused) return with_fma(values, count);
  box_muller_portable(values, count);
}

}  // namespace reelmesh
