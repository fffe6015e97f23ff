#pragma once
// Scalar functions that compilers vectorise, with the same bits on every instruction set, and on
// devices.
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/host_device.hpp"

namespace reelmesh::ops {

/// e^x to about 1 ulp; 0 below −87. Range reduction by powers of two and a polynomial of degree 6
/// (Cephes expf, S. Moshier).
REELMESH_HOST_DEVICE inline float exp_approx(float x) {
  const float limited = x > 88.0F ? 88.0F : (x < -87.0F ? -87.0F : x);
  constexpr float magic = 12582912.0F;  // 1.5·2^23: adding it rounds to an integer
  const float shifted = limited * 1.44269504088896341F + magic;
  const float n = shifted - magic;
  const std::int32_t exponent =
      std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(magic);
  float r = limited - n * 0.693359375F;
  r = r - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float y = p * (r * r) + r + 1.0F;
  const float scaled = y * std::bit_cast<float>((exponent + 127) << 23);
  return x < -87.0F ? 0.0F : scaled;
}

REELMESH_HOST_DEVICE inline float silu(float x) { return x / (1.0F + exp_approx(-x)); }

/// 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) = x·σ(2u).
REELMESH_HOST_DEVICE inline float gelu_tanh(float x) {
  const float u = 0.79788456080286535588F * (x + 0.044715F * (x * x * x));
  return x / (1.0F + exp_approx(-2.0F * u));
}

}  // namespace reelmesh::ops
