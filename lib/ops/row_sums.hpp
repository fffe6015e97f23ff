#pragma once
// Sums over a row on the CPU, in a fixed order: inlined in functions with target clones.
#include <cstdint>
#include <cstring>

namespace reelmesh::ops {

// Sums have 16 partial sums, whose halves are added in turn.
constexpr std::int64_t lanes = 16;
// Half of them: GCC takes vectors of AVX-512's size apart, number by number, for AVX2.
using HalfLanes [[gnu::vector_size(lanes / 2 * sizeof(float))]] = float;

[[gnu::always_inline]] inline void load(const float* x, HalfLanes& first, HalfLanes& second) {
  std::memcpy(&first, x, sizeof(first));
  std::memcpy(&second, x + lanes / 2, sizeof(second));
}

[[gnu::always_inline]] inline float sum_of_lanes(const HalfLanes& first, const HalfLanes& second) {
  const HalfLanes x = first + second;
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

[[gnu::always_inline]] inline float vector_sum(const float* x, std::int64_t n) {
  HalfLanes first{}, second{}, a, b;
  const std::int64_t even = n / lanes * lanes;
  for (std::int64_t i = 0; i < even; i += lanes) {
    load(x + i, a, b);
    first += a;
    second += b;
  }
  float sum = sum_of_lanes(first, second);
  for (std::int64_t i = even; i < n; ++i) sum += x[i];
  return sum;
}

[[gnu::always_inline]] inline float sum_of_squares(const float* x, std::int64_t n, float mean) {
  HalfLanes first{}, second{}, a, b;
  const std::int64_t even = n / lanes * lanes;
  for (std::int64_t i = 0; i < even; i += lanes) {
    load(x + i, a, b);
    a -= mean;
    b -= mean;
    first += a * a;
    second += b * b;
  }
  float sum = sum_of_lanes(first, second);
  for (std::int64_t i = even; i < n; ++i) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

// The sum of x·y.
[[gnu::always_inline]] inline float sum_of_products(const float* x, const float* y,
                                                    std::int64_t n) {
  HalfLanes first{}, second{}, a, b, c, d;
  const std::int64_t even = n / lanes * lanes;
  for (std::int64_t i = 0; i < even; i += lanes) {
    load(x + i, a, b);
    load(y + i, c, d);
    first += a * c;
    second += b * d;
  }
  float sum = sum_of_lanes(first, second);
  for (std::int64_t i = even; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace reelmesh::ops
