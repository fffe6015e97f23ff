#pragma once
// The functions of pointwise ops, in float32, which CPU and CUDA apply to each element. Always
// inlined, as those of math.hpp.
#include "ops/counter_random.hpp"
#include "ops/math.hpp"

namespace reelmesh::ops {

struct Sum {
  [[gnu::always_inline]] REELMESH_HOST_DEVICE float operator()(float a, float b) const {
    return a + b;
  }
};
struct Product {
  [[gnu::always_inline]] REELMESH_HOST_DEVICE float operator()(float a, float b) const {
    return a * b;
  }
};
struct Average {
  [[gnu::always_inline]] REELMESH_HOST_DEVICE float operator()(float a, float b) const {
    return 0.5F * (a + b);
  }
};

struct Silu {
  [[gnu::always_inline]] REELMESH_HOST_DEVICE float operator()(float x) const { return silu(x); }
};
struct Gelu {
  [[gnu::always_inline]] REELMESH_HOST_DEVICE float operator()(float x) const { return gelu(x); }
};
/// d times the derivative of gelu: Φ(x) + x·φ(x), with the normal distribution Φ and its density φ.
struct GeluGradient {
  [[gnu::always_inline]] REELMESH_HOST_DEVICE float operator()(float x, float d) const {
    const float share = 0.5F * (1.0F + erf_approx(0.70710678118654752440F * x));
    const float density = 0.39894228040143267794F * exp_approx(-0.5F * (x * x));
    return d * (share + x * density);
  }
};
struct Scale {
  float factor;
  [[gnu::always_inline]] REELMESH_HOST_DEVICE float operator()(float x) const { return factor * x; }
};
/// Zero if the upper half of an element's random bits is below `limit`, otherwise factor·x.
struct Drop {
  std::uint32_t limit;
  float factor;
  explicit Drop(double probability)
      : limit(static_cast<std::uint32_t>(probability * 0x1p32)),
        factor(static_cast<float>(1 / (1 - probability))) {}
  [[gnu::always_inline]] REELMESH_HOST_DEVICE float operator()(float x,
                                                               std::uint32_t random) const {
    return random < limit ? 0.0F : factor * x;
  }
};

}  // namespace reelmesh::ops
