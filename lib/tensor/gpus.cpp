#include "tensor/gpus.hpp"

#include "tensor/cuda/runtime.hpp"

namespace reelmesh {

int multiprocessors(Device device) {
  if constexpr (cuda_built) {
    if (device.is_cuda()) return cuda::multiprocessors(device);
  }
  return 0;
}

}  // namespace reelmesh
