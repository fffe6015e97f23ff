#pragma once
// Rows of tensors as floats on the CPU. Rows of float32 are not copied.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ops/onednn.hpp"
#include "tensor/convert.hpp"

namespace reelmesh::ops {

/// The calling thread's buffer for a row of n values.
inline float* row_scratch(std::int64_t n) {
  return static_cast<float*>(thread_scratch(4, static_cast<std::size_t>(n) * sizeof(float)));
}

/// Pixels of n channels whose floats leave half of a core's L1 cache free.
inline std::int64_t pixels_together(std::int64_t n) {
  constexpr std::int64_t values = (16 << 10) / sizeof(float);
  return std::max<std::int64_t>(1, values / n);
}

/// These values as floats: where they are, or in the thread's scratch.
template <class T>
const float* as_floats(const T* x, std::int64_t n) {
  if constexpr (std::is_same_v<T, float>) return x;
  float* values = row_scratch(n);
  convert(x, values, n);
  return values;
}

/// Calls f(x, y) with n values of x as floats, whose results go to y.
template <class T, class F>
void with_floats(const T* x, T* y, std::int64_t n, F&& f) {
  if constexpr (std::is_same_v<T, float>) {
    f(x, y);
  } else {
    float* values = row_scratch(n);
    convert(x, values, n);
    f(values, values);
    convert(values, y, n);
  }
}

}  // namespace reelmesh::ops
