#pragma once
// Warp-level products of small matrices (mma), and loads of their operands into registers. The
// layout of the fragments is that of "mma.m16n8k16" in the PTX manual: with g = lane / 4, t = lane
// % 4, a lane holds
//   A [16, 16]: a[0] (g, 2t), a[1] (g + 8, 2t), a[2] (g, 2t + 8), a[3] (g + 8, 2t + 8), each with
//               the element to its right in the upper half,
//   B [16, 8]:  b0 (2t, g), b1 (2t + 8, g), each with the element below it in the upper half,
//   C [16, 8]:  c[0] (g, 2t), c[1] (g, 2t + 1), c[2] (g + 8, 2t), c[3] (g + 8, 2t + 1).
#include "tensor/cuda/kernel.cuh"

#ifdef __CUDACC__

namespace reelmesh::gpu {

/// c += a·b for bfloat16 or float16, sums in float32. bfloat16 needs compute capability 8.0.
template <class T>
__device__ inline void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                           std::uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#else
  if constexpr (std::is_same_v<T, BFloat16>) {
    __trap();
  } else {  // in two halves of 8 along k
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
  }
#endif
}

/// Loads four 8×8 matrices of 16-bit elements from shared memory. Lane l passes the address of row
/// l % 8 of matrix l / 8; its r[i] receives elements (g, 2t) and (g, 2t + 1) of matrix i.
__device__ inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

/// The same for transposed matrices: r[i] receives elements (2t, g) and (2t + 1, g) of matrix i.
__device__ inline void load_transposed(std::uint32_t (&r)[4], const void* row) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

/// Copies 16 bytes from global to shared memory, both aligned; asynchronous from compute capability
/// 8.0 on. The copies since the last commit_copies() form one group.
__device__ inline void copy_async(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(global) : "memory");
#else
  *static_cast<uint4*>(shared) = *static_cast<const uint4*>(global);
#endif
}

__device__ inline void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits until at most N groups of this thread are pending. Other threads see the copies after a
/// barrier.
template <int N>
__device__ inline void wait_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

/// 2^x to about 2 units in the last place; 0 for −∞.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace reelmesh::gpu

#else
#include "support/tensor_cores_on_host.hpp"
#endif

namespace reelmesh::gpu {

/// Throws Error(unavailable) for bfloat16 on a device whose tensor cores lack it.
inline void require_tensor_cores(DType dtype, Device device) {
  const int capability = dtype == DType::bfloat16 ? compute_capability(device) : 80;
  require(capability >= 80, Status::unavailable,
          "{} has compute capability {}.{}, expected 8.0 or later for bfloat16; use numerics.dtype "
          "= float16 or float32",
          to_string(device), capability / 10, capability % 10);
}

/// Elements between the beginnings of two rows of `width` elements in shared memory, with which the
/// rows of an 8 × 8 matrix are in different banks.
template <int width>
constexpr int half_row_stride = width + 8;

/// Starts to copy rows [first, first + rows) of a matrix to shared memory, as one group of
/// copy_async(): zeros beyond `count` rows and `columns` columns. stride: of a row of the matrix.
/// aligned: whether its rows start at multiples of 16 bytes and `columns` is a multiple of 8. All
/// threads of a block of `threads` call it. at_once: copies of a thread whose addresses are in
/// registers together.
template <int width, int rows, int threads, int at_once = 4, class T>
__device__ inline void load_half_rows(const T* from, std::int64_t stride, int first, int count,
                                      int columns, bool aligned, T* into) {
  constexpr int row_stride = half_row_stride<width>;
  if (aligned) {
#pragma unroll at_once
    for (int i = static_cast<int>(threadIdx.x); i < rows * width / 8; i += threads) {
      const int row = i / (width / 8), c = i % (width / 8) * 8;
      T* target = into + row * row_stride + c;
      if (first + row < count && c < columns) {
        copy_async(target, from + (first + row) * stride + c);
      } else {
        *reinterpret_cast<uint4*>(target) = uint4{0, 0, 0, 0};
      }
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < rows * width; i += threads) {
      const int row = i / width, c = i % width;
      const bool there = first + row < count && c < columns;
      into[row * row_stride + c] = there ? from[(first + row) * stride + c] : narrow<T>(0.0F);
    }
  }
  commit_copies();
}

/// Reductions over the four lanes of a group that share rows of C.
__device__ inline float row_sum(float x) {
  x += shuffle_xor(x, 1);
  return x + shuffle_xor(x, 2);
}
__device__ inline float row_max(float x) {
  x = fmaxf(x, shuffle_xor(x, 1));
  return fmaxf(x, shuffle_xor(x, 2));
}

/// Two 16-bit values packed into a register: the first in the lower half.
template <class T>
__device__ inline std::uint32_t packed_pair(float first, float second) {
  const T a = narrow<T>(first), b = narrow<T>(second);
  return static_cast<std::uint32_t>(a.bits) | static_cast<std::uint32_t>(b.bits) << 16;
}

}  // namespace reelmesh::gpu
