#pragma once
// The functions of pointwise ops, in float32, which CPU and CUDA apply to each element. Always
// inlined, as those of math.hpp.
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
struct Scale {
  float factor;
  [[gnu::always_inline]] REELMESH_HOST_DEVICE float operator()(float x) const { return factor * x; }
};

}  // namespace reelmesh::ops
