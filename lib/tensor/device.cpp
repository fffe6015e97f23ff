#include "tensor/device.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "tensor/cuda/runtime.hpp"
#include "tensor/cuda/stream_clock.hpp"

namespace reelmesh {

std::string to_string(Device device) {
  if (device.only_shapes) return device.is_cuda() ? "shapes of a GPU" : "shapes";
  return device.is_cuda() ? fmt::format("cuda:{}", device.cuda) : "host";
}

std::string why_no_cuda() {
  if constexpr (cuda_built) {
    const cuda::Devices found = cuda::devices();
    return found.count > 0 ? ""
                           : fmt::format("there is no CUDA device: {}", found.no_device_reason);
  }
  return "this build has no CUDA backend";
}

const char* name_of(Transport transport) {
  switch (transport) {
    case Transport::automatic:
      return "auto";
    case Transport::nccl:
      return "nccl";
    case Transport::mpi:
      return "mpi";
  }
  return "";
}

Device device_of_rank(Backend backend, int local_rank) {
  if (backend == Backend::cpu) return {};
  std::string why = why_no_cuda();
  if constexpr (cuda_built) {
    const cuda::Devices found = cuda::devices();
    if (found.count > 0) why = cuda::why_no_libraries();
    if (why.empty()) return {local_rank % found.count};
    if (backend == Backend::automatic && (found.count > 0 || found.failed)) {
      log::warning("device.backend is auto and takes the CPU, because {}", why);
    }
  }
  require(backend == Backend::automatic, Status::unavailable, "device.backend is cuda, but {}",
          why);
  return {};
}

std::string name_of(Device device) {
  if constexpr (cuda_built) {
    if (device.is_cuda()) return cuda::name(device);
  }
  return "cpu";
}

std::string pci_bus(Device device) {
  if constexpr (cuda_built) {
    if (device.is_cuda()) return cuda::bus(device);
  }
  return {};
}

std::vector<Fact> facts_of(Device device, bool sends_by_nccl) {
  if constexpr (cuda_built) {
    if (device.is_cuda()) return cuda::facts(device, sends_by_nccl);
  }
  return {};
}

void require_kernels(Device device) {
  if constexpr (cuda_built) {
    if (device.is_cuda()) cuda::require_kernels(device);
  }
}

void synchronize(Device device) {
  if constexpr (cuda_built) {
    if (device.is_cuda()) cuda::synchronize(device);
  }
}

std::shared_ptr<trace::DeviceClock> device_clock(Device device) {
  if constexpr (cuda_built) {
    if (device.is_cuda()) return cuda::stream_clock(device);
  }
  return nullptr;
}

DeviceMemory device_memory(Device device) {
  if constexpr (cuda_built) {
    if (device.is_cuda()) return cuda::memory(device);
  }
  return {};
}

std::int64_t unused_device_memory(Device device) {
  if constexpr (cuda_built) {
    if (device.is_cuda()) return cuda::unused_memory(device);
  }
  return 0;
}

std::string cuda_versions() {
  if constexpr (cuda_built) return cuda::versions();
  return {};
}

}  // namespace reelmesh
