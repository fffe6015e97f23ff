#pragma once
// What tensors need of the CUDA runtime: memory, copies and synchronisation. There is one compute
// stream per device; work runs in the order in which the host enqueues it. Uses no CUDA types, so
// that builds without CUDA can include this file.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/device.hpp"
#include "tensor/dtype.hpp"

namespace reelmesh {
class Tensor;
}

namespace reelmesh::cuda {

struct Devices {
  int count = 0;
  std::string no_device_reason;  ///< the reason if count is 0: no driver, no device, …
  bool failed = false;           ///< there is a driver, but it failed: it is too old, for instance
};
Devices devices();
/// Why cuBLASLt or cuDNN cannot be loaded; empty if both can. Loads them.
std::string why_no_libraries();

std::string name(Device device);                             ///< as name_of()
std::string bus(Device device);                              ///< as pci_bus()
std::string versions();                                      ///< as cuda_versions()
std::vector<Fact> facts(Device device, bool sends_by_nccl);  ///< as facts_of()
void require_kernels(Device device);                         ///< as reelmesh::require_kernels
int multiprocessors(Device device);                          ///< as reelmesh::multiprocessors()
/// For which GPUs the kernels of this build are: "compute capability 8.0, 9.0 by CUDA 13.0, …".
std::string compiled_for();
/// "13.0" for 13000, as CUDA numbers its versions.
std::string version_of_cuda(int number);
DeviceMemory memory(Device device);         ///< as device_memory()
std::int64_t unused_memory(Device device);  ///< as unused_device_memory()

/// Uninitialised memory (cudaMallocAsync), for work that is later enqueued on the device's stream.
/// Counted until its last owner is gone. Throws Error(unavailable) if the device has not enough.
std::shared_ptr<const void> allocate(Device device, std::int64_t bytes, void** address);

/// Counts device memory that is not held by a tensor, for as long as the result lives.
std::shared_ptr<const void> count(Device device, std::int64_t bytes);
/// Peak of the counted bytes since the last call; at least the present bytes.
std::int64_t peak_since_last(Device device);
/// Waits for the device, then returns the memory of freed tensors and destroyed graphs to it.
void trim_memory_pool(Device device);

/// Fills device memory piece by piece: fill(host, offset, count) writes `count` bytes to pinned
/// memory, while the piece before is copied to the device. Pieces are multiples of `unit` bytes, at
/// most 16 MiB. Throws Error(internal) if `unit` is larger.
using Fill = std::function<void(void* host, std::int64_t offset, std::int64_t count)>;
void upload(Device device, void* into, std::int64_t bytes, std::int64_t unit, const Fill& fill);

/// Copies; those from and to the host go through pinned memory. to_device returns when `host` may
/// change, to_host when it is filled; on_device only enqueues the copy.
void to_device(Device device, void* into, const void* host, std::int64_t bytes);
void to_host(Device device, void* host, const void* from, std::int64_t bytes);
void on_device(Device device, void* into, const void* from, std::int64_t bytes);
void fill_zero(Device device, void* into, std::int64_t bytes);
/// Waits for all work enqueued on the device's stream. Throws errors of earlier kernels.
void synchronize(Device device);

/// Called repeatedly while the host waits for a device, with the seconds waited so far; throws to
/// end the wait. Set by code that enqueues work that depends on other ranks (NCCL).
inline void (*watch)(double seconds) = nullptr;

/// As reelmesh::convert, on the device.
void convert(Device device, const void* from, DType from_type, void* into, DType into_type,
             std::int64_t count);
/// As reelmesh::expand_float8.
void expand_float8(Device device, const Tensor& bytes, const Tensor& values, const Tensor& factors,
                   Tensor& into);

}  // namespace reelmesh::cuda
