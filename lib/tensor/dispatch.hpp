#pragma once
// The one place where a function chooses between its CUDA and its CPU implementation, or computes
// nothing.
#include <type_traits>

#include "base/error.hpp"
#include "tensor/device.hpp"

namespace reelmesh {

/// Returns on_cuda() if `device` is a CUDA device, on_shapes() if its tensors have shapes only,
/// otherwise on_cpu(). All are functions without arguments. Builds without CUDA do not call
/// on_cuda, so they need no definitions of what it calls; there, `device` is never a CUDA device
/// (Tensor::empty refuses them).
template <class OnCuda, class OnCpu, class OnShapes>
auto dispatch([[maybe_unused]] Device device, [[maybe_unused]] OnCuda&& on_cuda, OnCpu&& on_cpu,
              OnShapes&& on_shapes) {
  if (device.only_shapes) return on_shapes();
  if constexpr (cuda_built) {
    if (device.is_cuda()) return on_cuda();
  }
  return on_cpu();
}

/// The same for functions without a result: with shapes only they do nothing.
template <class OnCuda, class OnCpu>
void dispatch(Device device, OnCuda&& on_cuda, OnCpu&& on_cpu) {
  static_assert(std::is_void_v<decltype(on_cpu())>);
  dispatch(device, on_cuda, on_cpu, [] {});
}

}  // namespace reelmesh
