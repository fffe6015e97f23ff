#pragma once
// Replaces the CUDA part of tensor/cuda/kernel.cuh on the emulated GPU: thread blocks are run by
// emulated_gpu/threads.hpp, and launch() enqueues a kernel on the stream of the emulated device.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "emulated_gpu/settings.hpp"
#include "emulated_gpu/stream.hpp"
#include "emulated_gpu/threads.hpp"
#include "tensor/cuda/handles.hpp"
#include "tensor/tensor.hpp"

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

inline void __syncthreads() { reelmesh::on_host::barrier(); }

namespace reelmesh::gpu {

template <class T>
float widen(T x) {
  return static_cast<float>(x);
}
template <class T>
T narrow(float x) {
  return T(x);
}

/// In double: a·b is exact and the result is rounded twice, which differs from a true fma in rare
/// cases only. Many times faster than the C library's fmaf on processors without that instruction.
inline float fmaf(float a, float b, float c) {
  return static_cast<float>(static_cast<double>(a) * b + c);
}

inline float shuffle_xor(float x, int mask) {
  struct Lane {
    float brought, got;
    int other;
  } lane{x, 0, on_host::lane() ^ mask};
  on_host::full_warp_collective(&lane, [](void* const* all, int count) {
    for (int i = 0; i < count; ++i) {
      auto* mine = static_cast<Lane*>(all[i]);
      mine->got = static_cast<Lane*>(all[mine->other])->brought;
    }
  });
  return lane.got;
}

template <class T>
T* shared_memory() {
  return reinterpret_cast<T*>(on_host::shared_memory());
}

// Sums beyond the range wrap around, as on a GPU.
inline void atomic_add(std::int64_t* to, std::int64_t what) {
  *to =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(*to) + static_cast<std::uint64_t>(what));
}

/// major·10 + minor
inline int compute_capability(Device device) { return cuda::compute_capability(device); }

struct Launch {
  const char* name;
  Device device;
  std::int64_t blocks;
  int threads = 256;
  std::int64_t shared_bytes = 0;
};

// Limits that all CUDA devices have without cudaFuncSetAttribute.
constexpr int max_threads = 1024;
constexpr std::int64_t max_shared_bytes = 48 << 10;

template <class... Parameters, class... Arguments>
void launch(const Launch& how, void (*kernel)(Parameters...), Arguments&&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...),
                "arguments of kernels are bytes");
  if (how.blocks == 0) return;
  expect(how.blocks > 0 && how.blocks < (std::int64_t{1} << 31), "{} blocks for kernel {}",
         how.blocks, how.name);
  const bool possible = how.threads > 0 && how.threads <= max_threads && how.shared_bytes >= 0 &&
                        how.shared_bytes <= max_shared_bytes;
  cuda::check(possible ? cudaSuccess : cudaErrorInvalidValue, how.name);
  // Kernels are as if compiled to PTX.
  const bool supported = emulated::settings().driver >= emulated::toolkit;
  cuda::check(supported ? cudaSuccess : cudaErrorUnsupportedPtxVersion, how.name);
  const on_host::Grid grid{how.name, how.blocks, how.threads,
                           static_cast<std::size_t>(how.shared_bytes)};
  const std::tuple<Parameters...> values(
      static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  const auto run = [grid, kernel, values] {
    on_host::run(grid, [&] { std::apply(kernel, values); });
  };
  cuda::check(emulated::enqueue(cuda::stream(how.device), {how.name, run}), how.name);
  cuda::check(cudaGetLastError(), how.name);
}

}  // namespace reelmesh::gpu
