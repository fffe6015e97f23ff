#pragma once
// Scalar functions that compilers vectorise, with the same bits on every instruction set.
#include <bit>
#include <cmath>
#include <cstdint>

namespace reelmesh::ops {

/// e^x for x ≤ 88 to about 1 ulp; 0 below −87.7. Range reduction by powers of two and a polynomial
/// of degree 6 (Cephes expf, S. Moshier), with fused multiplications and additions.
inline float exp_below_88(float x) {
  const float limited = -88.0F > x ? -88.0F : x;  // where 2^n below is 0
  constexpr float magic = 12582912.0F;            // 1.5·2^23: adding it rounds to an integer
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

/// The same for all x; e^88 above 88.
inline float exp_approx(float x) { return exp_below_88(88.0F < x ? 88.0F : x); }

inline float silu(float x) { return x / (1.0F + exp_approx(-x)); }

/// 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) = x·σ(2u).
inline float gelu_tanh(float x) {
  const float u = 0.79788456080286535588F * (x + 0.044715F * (x * x * x));
  return x / (1.0F + exp_approx(-2.0F * u));
}

}  // namespace reelmesh::ops
