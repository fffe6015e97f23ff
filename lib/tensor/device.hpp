#pragma once
// Where a tensor's memory is, and where ops on it are computed.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace reelmesh::trace {
class DeviceClock;
}

namespace reelmesh {

/// Whether this build has the CUDA backend. Code that calls the backend is passed to dispatch()
/// or inside `if constexpr`, so builds without it need no stubs.
#ifdef REELMESH_WITH_CUDA
inline constexpr bool cuda_built = true;
#else
inline constexpr bool cuda_built = false;
#endif

/// The host, or one CUDA device by its ordinal in the CUDA runtime; or one that stands for either
/// in a dry run (tensor/ledger.hpp).
struct Device {
  int cuda = -1;             ///< −1: the host
  bool only_shapes = false;  ///< tensors have no memory, and nothing is computed

  /// A device whose tensors have shapes only. Code makes the same choices for it as for the host,
  /// or for a GPU.
  static constexpr Device shapes(bool of_gpu = false) { return {of_gpu ? 0 : -1, true}; }

  bool is_cuda() const { return cuda >= 0; }
  /// Where the host's tensors are that belong to those of this device.
  constexpr Device host() const { return {-1, only_shapes}; }
  bool operator==(const Device&) const = default;
};

std::string to_string(Device device);  ///< "host", "cuda:1", "shapes"

/// Why this process cannot use a CUDA device: "this build has no CUDA backend", "there is no CUDA
/// device: …"; empty if it can.
std::string why_no_cuda();

/// Values of the job key `device.backend`.
enum class Backend { automatic, cpu, cuda };

/// How tensors on a device are transferred between ranks (job key `device.transport`).
enum class Transport {
  automatic,
  nccl,  ///< from device to device by NCCL
  mpi,   ///< by MPI, through pinned host memory
};
const char* name_of(Transport transport);  ///< "auto", "nccl", "mpi"

/// The device of a rank. cuda: device local_rank modulo the number of visible devices, so ranks may
/// share devices; local_rank: index of the rank on its host. automatic: as cuda, or the host if
/// there is no CUDA device, or the libraries that it needs cannot be loaded; a device that is there
/// but not used is warned of. Throws Error(unavailable) with the reason if backend is cuda and
/// there is none.
Device device_of_rank(Backend backend, int local_rank);

/// "cpu", or a GPU's name: "NVIDIA H100 80GB HBM3".
std::string name_of(Device device);

/// PCI bus id, which identifies a GPU within its host even if processes number GPUs differently;
/// empty for the host.
std::string pci_bus(Device device);

/// A name and a value.
using Fact = std::pair<std::string, std::string>;
inline constexpr const char* nccl_name = "NCCL";
inline constexpr const char* not_found = "not found";  ///< in place of the version of a library
/// What the bits of results on a GPU may depend on: its name, compute capability and number of
/// multiprocessors, the CUDA version of the driver, and the versions of cuBLASLt and cuDNN; and
/// that of NCCL, last, if ranks may send by it. In the same order on all ranks. Empty for the host.
std::vector<Fact> facts_of(Device device, bool sends_by_nccl);

/// Throws Error(unavailable) if this GPU, or its driver, cannot run the kernels of this build: says
/// for which they were compiled, and what was found. Does nothing for the host.
void require_kernels(Device device);

/// Waits until all work enqueued on the device's stream is done. Throws errors of earlier kernels.
/// Does nothing for the host.
void synchronize(Device device);
/// The clock of the device's stream, for trace::DeviceSpans; null for the host.
std::shared_ptr<trace::DeviceClock> device_clock(Device device);

/// Bytes held by this process's tensors and graphs on a device, now and at the peak. 0 for the
/// host, whose tensors are not counted.
struct DeviceMemory {
  std::int64_t present = 0, peak = 0;
};
DeviceMemory device_memory(Device device);
/// Free bytes of a device as reported by the driver; 0 for the host.
std::int64_t unused_device_memory(Device device);

/// "13.0, cuBLASLt 13.1.0, cuDNN 9.19.0, NCCL 2.28.9"; empty in a build without CUDA.
std::string cuda_versions();

}  // namespace reelmesh
