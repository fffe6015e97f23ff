#pragma once
// ops/cuda/tensor_cores.cuh on the host, from its description. Copies on their way arrive as late
// as they may.
#include <array>

#include "support/cuda_on_host.hpp"

namespace reelmesh::gpu {

template <class T>
T half_of(std::uint32_t pair, int which) {
  T x;
  x.bits = static_cast<std::uint16_t>(pair >> (16 * which));
  return x;
}

template <class T>
void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const std::array<std::uint32_t, 6> mine{a[0], a[1], a[2], a[3], b0, b1};
  const int g = on_host::lane() / 4, t = on_host::lane() % 4;
  const auto products = on_host::exchange(mine, [&](auto&& of) {
    std::array<float, 4> sums{};
    for (int i = 0; i < 4; ++i) {
      const int row = g + i / 2 * 8, column = 2 * t + i % 2;
      for (int k = 0; k < 16; ++k) {
        const auto part = static_cast<std::size_t>(k / 8);
        const auto x = half_of<T>(
            of(row % 8 * 4 + k % 8 / 2)[2 * part + static_cast<std::size_t>(row / 8)], k % 2);
        const auto y = half_of<T>(of(column * 4 + k % 8 / 2)[4 + part], k % 2);
        sums[static_cast<std::size_t>(i)] += widen(x) * widen(y);
      }
    }
    return sums;
  });
  for (std::size_t i = 0; i < 4; ++i) c[i] += products[i];
}

inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
  const int g = on_host::lane() / 4, t = on_host::lane() % 4;
  const auto loaded = on_host::exchange(row, [&](auto&& of) {
    std::array<std::uint32_t, 4> values{};
    for (int i = 0; i < 4; ++i) {
      std::memcpy(&values[static_cast<std::size_t>(i)],
                  static_cast<const std::uint16_t*>(of(8 * i + g)) + 2 * t, 4);
    }
    return values;
  });
  std::copy(loaded.begin(), loaded.end(), r);
}

inline void load_transposed(std::uint32_t (&r)[4], const void* row) {
  const int g = on_host::lane() / 4, t = on_host::lane() % 4;
  const auto loaded = on_host::exchange(row, [&](auto&& of) {
    std::array<std::uint32_t, 4> values{};
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t first = static_cast<const std::uint16_t*>(of(8 * i + 2 * t))[g];
      const std::uint32_t second = static_cast<const std::uint16_t*>(of(8 * i + 2 * t + 1))[g];
      values[static_cast<std::size_t>(i)] = first | second << 16;
    }
    return values;
  });
  std::copy(loaded.begin(), loaded.end(), r);
}

inline void copy_async(void* shared, const void* global) {
  on_host::Fiber& fiber = *on_host::block.current;
  fiber.copies.push_back({shared, global, fiber.groups});
}

inline void commit_copies() { ++on_host::block.current->groups; }

template <int N>
void wait_copies() {
  on_host::Fiber& fiber = *on_host::block.current;
  std::erase_if(fiber.copies, [&](const on_host::Copy& copy) {
    if (copy.group >= fiber.groups - N) return false;
    std::memcpy(copy.into, copy.from, 16);
    return true;
  });
}

inline float exp2_approx(float x) { return std::exp2(x); }

}  // namespace reelmesh::gpu
