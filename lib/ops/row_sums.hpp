#pragma once
// Sums over a row on the CPU, in a fixed order: inlined in functions with target clones.
#include <cstdint>
#include <cstring>

namespace reelmesh::ops {

// Sums have 16 partial sums, whose halves are added in turn.
constexpr std::int64_t lanes = 16;
using Lanes [[gnu::vector_size(lanes * sizeof(float))]] = float;

[[gnu::always_inline]] inline float sum_of_lanes(const Lanes& x) {
  const auto eight = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  return ((eight[0] + eight[4]) + (eight[2] + eight[6])) +
         ((eight[1] + eight[5]) + (eight[3] + eight[7]));
}

[[gnu::always_inline]] inline float vector_sum(const float* x, std::int64_t n) {
  Lanes partial = {};
  const std::int64_t even = n / lanes * lanes;
  for (std::int64_t i = 0; i < even; i += lanes) {
    Lanes next;
    std::memcpy(&next, x + i, sizeof(next));
    partial += next;
  }
  float sum = sum_of_lanes(partial);
  for (std::int64_t i = even; i < n; ++i) sum += x[i];
  return sum;
}

[[gnu::always_inline]] inline float sum_of_squares(const float* x, std::int64_t n, float mean) {
  Lanes partial = {};
  const std::int64_t even = n / lanes * lanes;
  for (std::int64_t i = 0; i < even; i += lanes) {
    Lanes next;
    std::memcpy(&next, x + i, sizeof(next));
    next -= mean;
    partial += next * next;
  }
  float sum = sum_of_lanes(partial);
  for (std::int64_t i = even; i < n; ++i) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

}  // namespace reelmesh::ops
