#pragma once
// Scalar functions that compilers vectorise, with the same bits on every instruction set and on
// GPUs.
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/host_device.hpp"

// Always inlined, so that each target clone (base/clones.hpp) compiles it for its instruction set.
// A separate function would be compiled for the oldest one and be ten times as slow.
#define REELMESH_INLINE [[gnu::always_inline]] REELMESH_HOST_DEVICE inline

namespace reelmesh::ops {

/// Neither NaN nor infinite, whatever the compiler assumes of such values.
REELMESH_INLINE bool is_finite(float x) {
  constexpr std::uint32_t exponent = 0x7F800000;
  return (std::bit_cast<std::uint32_t>(x) & exponent) != exponent;
}

/// e^x to about 1 ulp; 0 below −87.7, e^88 above 88. Range reduction by powers of two and a
/// polynomial of degree 6 (Cephes expf, S. Moshier), with fused multiply-adds.
REELMESH_INLINE float exp_approx(float x) {
  const float magnitude = std::abs(x);
  // At −88 the factor 2^n below is 0.
  const float limited = std::copysign(88.0F < magnitude ? 88.0F : magnitude, x);
  constexpr float magic = 12582912.0F;  // 1.5·2^23: adding it rounds to an integer
  const float shifted = std::fma(limited, 1.44269504088896341F, magic);
  const float n = shifted - magic;
  const std::int32_t exponent =
      std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(magic);
  float r = std::fma(n, -0.693359375F, limited);
  r = std::fma(n, 2.12194440e-4F, r);
  float p = 1.9875691500e-4F;
  p = std::fma(p, r, 1.3981999507e-3F);
  p = std::fma(p, r, 8.3334519073e-3F);
  p = std::fma(p, r, 4.1665795894e-2F);
  p = std::fma(p, r, 1.6666665459e-1F);
  p = std::fma(p, r, 5.0000001201e-1F);
  const float y = std::fma(p, r * r, r + 1.0F);
  return y * std::bit_cast<float>((exponent + 127) << 23);
}

/// 2^x for x < 128 to about 1 ulp; 0 below −126.5. Among polynomials of degree 6 that are 1 at 0,
/// this one has the smallest maximum relative error on [−1/2, 1/2].
REELMESH_INLINE float exp2_approx(float x) {
  const float limited = -127.0F > x ? -127.0F : x;
  constexpr float magic = 12582912.0F + 127.0F;  // low bits of x + magic: n + exponent bias
  const float shifted = limited + magic;
  const float f = limited - (shifted - magic);
  float p = 0.00015353362F;
  p = std::fma(p, f, 0.0013398875F);
  p = std::fma(p, f, 0.00961843692F);
  p = std::fma(p, f, 0.0555033237F);
  p = std::fma(p, f, 0.240226477F);
  p = std::fma(p, f, 0.693147182F);
  p = std::fma(p, f, 1.0F);
  return p * std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) << 23);
}

REELMESH_INLINE float silu(float x) { return x / (1.0F + exp_approx(-x)); }

/// The error function to about 1 ulp (N. Juffa): a polynomial near 0, beyond it 1 − exp of one.
REELMESH_INLINE float erf_approx(float x) {
  const float t = std::abs(x), s = x * x;
  float far = std::fma(1.72948930e-5F, t, -3.83208680e-4F);
  far = std::fma(far, s, std::fma(3.88393435e-3F, t, -2.42545605e-2F));
  far = std::fma(far, t, 1.06777847e-1F);
  far = std::fma(far, t, 6.34846687e-1F);
  far = std::fma(far, t, 1.28717512e-1F);
  far = std::copysign(1.0F - exp_approx(-std::fma(far, t, t)), x);
  float near = -5.99104969e-4F;
  near = std::fma(near, s, 4.99339588e-3F);
  near = std::fma(near, s, -2.67667342e-2F);
  near = std::fma(near, s, 1.12818025e-1F);
  near = std::fma(near, s, -3.76124859e-1F);
  near = std::fma(near, s, 1.28379151e-1F);
  return t > 0.921875F ? far : std::fma(near, x, x);
}

/// 0.5·x·(1 + erf(x/√2)).
REELMESH_INLINE float gelu(float x) {
  return 0.5F * x * (1.0F + erf_approx(0.70710678118654752440F * x));
}

/// 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) = x·σ(2u).
REELMESH_INLINE float gelu_tanh(float x) {
  const float u = 0.79788456080286535588F * (x + 0.044715F * (x * x * x));
  return x / (1.0F + exp_approx(-2.0F * u));
}

/// The derivative of gelu_tanh: σ(2u) + x·σ(2u)·(1 − σ(2u))·2·du/dx.
REELMESH_INLINE float gelu_tanh_slope(float x) {
  constexpr float factor = 0.79788456080286535588F;
  const float u = factor * (x + 0.044715F * (x * x * x));
  const float sigma = 1.0F / (1.0F + exp_approx(-2.0F * u));
  const float twice_du = 2.0F * factor * (1.0F + 3.0F * 0.044715F * (x * x));
  return sigma + x * sigma * (1.0F - sigma) * twice_du;
}

}  // namespace reelmesh::ops

#undef REELMESH_INLINE
