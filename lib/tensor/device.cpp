#include "tensor/device.hpp"

#include "base/error.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh {

std::string to_string(Device device) {
  return device.is_cuda() ? fmt::format("cuda:{}", device.cuda) : "host";
}

Device device_of_rank(Backend backend, int local_rank) {
  if (backend == Backend::cpu) return {};
  cuda::Devices found;
  if constexpr (cuda_built) {
    found = cuda::devices();
  } else {
    found.why_none = "this build is without CUDA (REELMESH_CUDA)";
  }
  if (found.count > 0) return {local_rank % found.count};
  require(backend == Backend::automatic, Status::unavailable,
          "device.backend is cuda, but there is no CUDA device: {}", found.why_none);
  return {};
}

DeviceMemory device_memory(Device device) {
  if constexpr (cuda_built) {
    if (device.is_cuda()) return cuda::memory(device);
  }
  return {};
}

std::string cuda_versions() {
  if constexpr (cuda_built) return cuda::versions();
  return "not in this build";
}

}  // namespace reelmesh
