#pragma once
// Building blocks of kernels: loads and stores of elements, warp-level functions, and launches. The
// tests run the same kernels on the host, with support/cuda_on_host.hpp instead of CUDA.
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tensor/cuda/handles.hpp"
#else
#include "support/cuda_on_host.hpp"
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "base/host_device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

constexpr int warp_size = 32;

#ifdef __CUDACC__

template <class T>
__device__ inline float widen(T x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return __uint_as_float(static_cast<std::uint32_t>(x.bits) << 16);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return __half2float(__ushort_as_half(x.bits));
  } else {
    return x;
  }
}

/// Rounds to nearest even.
template <class T>
__device__ inline T narrow(float x) {
  T y;
  if constexpr (std::is_same_v<T, BFloat16>) {
    y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
  } else if constexpr (std::is_same_v<T, Float16>) {
    y.bits = __half_as_ushort(__float2half_rn(x));
  } else {
    y = x;
  }
  return y;
}

__device__ inline float shuffle_xor(float x, int mask) {
  return __shfl_xor_sync(0xffffffffU, x, mask);
}

/// Dynamic shared memory of the block (Launch::shared_bytes), aligned to 16 bytes.
template <class T>
__device__ inline T* shared_memory() {
  extern __shared__ uint4 reelmesh_shared[];
  return reinterpret_cast<T*>(reelmesh_shared);
}

__device__ inline void atomic_add(std::int64_t* to, std::int64_t what) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(what));
}

/// Major·10 + minor.
inline int compute_capability(Device device) { return cuda::compute_capability(device); }

/// Launch configuration. name: for error messages.
struct Launch {
  const char* name;
  Device device;
  std::int64_t blocks;
  int threads = 256;
  std::int64_t shared_bytes = 0;
};

template <class... Parameters, class... Arguments>
void launch(const Launch& how, void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (how.blocks == 0) return;
  expect(how.blocks > 0 && how.blocks < (std::int64_t{1} << 31), "{} blocks for kernel {}",
         how.blocks, how.name);
  kernel<<<static_cast<unsigned>(how.blocks), static_cast<unsigned>(how.threads),
           static_cast<std::size_t>(how.shared_bytes), cuda::stream(how.device)>>>(
      static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  cuda::check(cudaGetLastError(), how.name);
}

#endif

/// Elements of a pack: one 16-byte access.
template <class T>
constexpr int pack_size = 16 / static_cast<int>(sizeof(T));

/// Loads W elements: one, or whole packs from an address aligned to 16 bytes.
template <int W, class T>
__device__ inline void load(const T* from, float (&into)[W]) {
  if constexpr (W == 1) {
    into[0] = widen(*from);
  } else {
    static_assert(W * sizeof(T) % 16 == 0);
    T values[W];
    uint4 raw[W * sizeof(T) / 16];
    for (std::size_t i = 0; i < W * sizeof(T) / 16; ++i) {
      raw[i] = reinterpret_cast<const uint4*>(from)[i];
    }
    memcpy(values, raw, sizeof(values));
    for (int i = 0; i < W; ++i) into[i] = widen(values[i]);
  }
}

template <int W, class T>
__device__ inline void store(const float (&from)[W], T* into) {
  if constexpr (W == 1) {
    *into = narrow<T>(from[0]);
  } else {
    static_assert(W * sizeof(T) % 16 == 0);
    T values[W];
    for (int i = 0; i < W; ++i) values[i] = narrow<T>(from[i]);
    uint4 raw[W * sizeof(T) / 16];
    memcpy(raw, values, sizeof(values));
    for (std::size_t i = 0; i < W * sizeof(T) / 16; ++i) reinterpret_cast<uint4*>(into)[i] = raw[i];
  }
}

/// Sum over a warp, or over each group of `lanes` neighbouring lanes (a power of two), in a fixed
/// order; all of them get the same bits.
__device__ inline float warp_sum(float x, int lanes = warp_size) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

/// Address of a tensor on the device. Throws Error(internal) if type or device do not match.
template <class T>
T* address(Tensor& tensor, Device device) {
  expect(dtype_of<T>() == tensor.dtype(), "kernel for {} given {}", name_of(dtype_of<T>()),
         name_of(tensor.dtype()));
  return static_cast<T*>(tensor.address_on(device));
}
template <class T>
const T* address(const Tensor& tensor, Device device) {
  expect(dtype_of<T>() == tensor.dtype(), "kernel for {} given {}", name_of(dtype_of<T>()),
         name_of(tensor.dtype()));
  return static_cast<const T*>(tensor.address_on(device));
}

inline bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

inline std::int64_t blocks_for(std::int64_t work, std::int64_t each) {
  return (work + each - 1) / each;
}

}  // namespace reelmesh::gpu
