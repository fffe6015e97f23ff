#include "tensor/device_space.hpp"

#include "tensor/cuda/device_space.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh {

DeviceSpace device_space(Device device) {
  if constexpr (cuda_built) {
    if (device.is_cuda()) return cuda::space(device);
  }
  return {};
}

void release_pooled_memory(Device device) {
  if constexpr (cuda_built) {
    if (device.is_cuda()) cuda::trim_memory_pool(device);
  }
}

}  // namespace reelmesh
