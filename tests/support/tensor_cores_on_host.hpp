#pragma once
// The functions of ops/cuda/tensor_cores.cuh for the emulated GPU, with the fragment layouts that
// are described there. Asynchronous copies complete as late as their contract allows.
#include "support/cuda_on_host.hpp"

namespace reelmesh::gpu {

template <class T>
float unpacked(std::uint32_t pair, int which) {
  T x;
  x.bits = static_cast<std::uint16_t>(pair >> (16 * which));
  return widen(x);
}

template <class T>
void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  struct Lane {
    float* c;
    const std::uint32_t* a;
    std::uint32_t b[2];
  } lane{c, a, {b0, b1}};
  on_host::full_warp_collective(&lane, [](void* const* all, int) {
    float x[16][16], y[16][8], sums[16][8] = {};
    for (int i = 0; i < on_host::lanes; ++i) {
      const auto* from = static_cast<const Lane*>(all[i]);
      const int g = i / 4, t = i % 4;
      for (int j = 0; j < 2; ++j) {
        for (int part = 0; part < 4; ++part) {
          x[g + part % 2 * 8][2 * t + part / 2 * 8 + j] = unpacked<T>(from->a[part], j);
        }
        for (int part = 0; part < 2; ++part) {
          y[2 * t + part * 8 + j][g] = unpacked<T>(from->b[part], j);
        }
      }
    }
    for (int row = 0; row < 16; ++row) {
      for (int k = 0; k < 16; ++k) {
        for (int column = 0; column < 8; ++column) sums[row][column] += x[row][k] * y[k][column];
      }
    }
    for (int i = 0; i < on_host::lanes; ++i) {
      float* into = static_cast<Lane*>(all[i])->c;
      for (int j = 0; j < 4; ++j) into[j] += sums[i / 4 + j / 2 * 8][2 * (i % 4) + j % 2];
    }
  });
}

struct MatrixLane {
  std::uint32_t* into;
  const void* row;
};

inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
  on_host::expect_aligned(row);
  MatrixLane lane{r, row};
  on_host::full_warp_collective(&lane, [](void* const* all, int) {
    for (int i = 0; i < on_host::lanes; ++i) {
      for (int m = 0; m < 4; ++m) {
        const void* from = static_cast<MatrixLane*>(all[8 * m + i / 4])->row;
        std::memcpy(&static_cast<MatrixLane*>(all[i])->into[m],
                    static_cast<const std::uint16_t*>(from) + 2 * (i % 4), 4);
      }
    }
  });
}

inline void load_transposed(std::uint32_t (&r)[4], const void* row) {
  on_host::expect_aligned(row);
  MatrixLane lane{r, row};
  on_host::full_warp_collective(&lane, [](void* const* all, int) {
    for (int i = 0; i < on_host::lanes; ++i) {
      const int g = i / 4, t = i % 4;
      for (int m = 0; m < 4; ++m) {
        const auto number = [&](int line) -> std::uint32_t {
          return static_cast<const std::uint16_t*>(
              static_cast<MatrixLane*>(all[8 * m + line])->row)[g];
        };
        static_cast<MatrixLane*>(all[i])->into[m] = number(2 * t) | number(2 * t + 1) << 16;
      }
    }
  });
}

inline void copy_async(void* shared, const void* global) { on_host::copy_async(shared, global); }
inline void commit_copies() { on_host::end_group(); }
template <int N>
void wait_copies() {
  on_host::wait_for_groups(N);
}

inline float exp2_approx(float x) { return std::exp2(x); }

}  // namespace reelmesh::gpu
