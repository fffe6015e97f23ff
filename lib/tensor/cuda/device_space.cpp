#include "tensor/cuda/device_space.hpp"

#include <algorithm>

#include "tensor/cuda/handles.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::cuda {

DeviceSpace space(Device device) {
  (void)stream(device);  // makes the device current
  std::size_t unused = 0, all = 0;
  check(cudaMemGetInfo(&unused, &all), "cudaMemGetInfo");
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, device.cuda), "cudaDeviceGetDefaultMemPool");
  std::uint64_t reserved = 0, used = 0;
  check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved),
        "cudaMemPoolGetAttribute");
  check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used),
        "cudaMemPoolGetAttribute");
  return {static_cast<std::int64_t>(all),
          static_cast<std::int64_t>(reserved - std::min(reserved, used))};
}

}  // namespace reelmesh::cuda
