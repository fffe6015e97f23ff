#pragma once
// The one place where a function chooses between its CUDA and its CPU implementation.
#include "tensor/device.hpp"

namespace reelmesh {

/// Returns on_cuda() if `device` is a CUDA device, otherwise on_cpu(). Both are functions without
/// arguments. Builds without CUDA do not call on_cuda, so they need no definitions of what it
/// calls; there, `device` is always the host (Tensor::empty refuses others).
template <class OnCuda, class OnCpu>
auto dispatch([[maybe_unused]] Device device, [[maybe_unused]] OnCuda&& on_cuda, OnCpu&& on_cpu) {
  if constexpr (cuda_built) {
    if (device.is_cuda()) return on_cuda();
  }
  return on_cpu();
}

}  // namespace reelmesh
