#pragma once
// Where a tensor's memory lies, and with it where ops on it are computed.
#include <cstdint>
#include <string>

namespace reelmesh {

/// Whether the CUDA backend is in this build. Code that names it stands in `if constexpr`, so that
/// a build without it needs no stand-ins.
#ifdef REELMESH_WITH_CUDA
inline constexpr bool cuda_built = true;
#else
inline constexpr bool cuda_built = false;
#endif

/// The host, or one CUDA device by the number that the CUDA runtime gives it.
struct Device {
  int cuda = -1;  ///< −1: the host

  bool is_cuda() const { return cuda >= 0; }
  bool operator==(const Device&) const = default;
};

std::string to_string(Device device);  ///< "host", "cuda:1"

/// Why this process cannot use a CUDA device: "this build has no CUDA backend", "there is no CUDA
/// device: …"; empty where it can.
std::string why_no_cuda();

/// What `device.backend` asks for.
enum class Backend { automatic, cpu, cuda };

/// How tensors of a device travel between ranks (`device.transport`).
enum class Transport {
  automatic,
  nccl,  ///< from device to device by NCCL
  mpi,   ///< by MPI: through pinned memory of the host, unless the MPI library takes addresses of
         ///< devices
};
const char* name_of(Transport transport);  ///< "auto", "nccl", "mpi"

/// The device of a rank: for cuda the one with its number among the ranks of its host, counted
/// round where ranks share devices (a launcher that shows each rank one device gives it that one).
/// automatic: the host where there is no CUDA device. Throws Error(unavailable) where cuda is asked
/// for and cannot be had, saying why.
Device device_of_rank(Backend backend, int local_rank);

/// "cpu", or a GPU's name: "NVIDIA H100 80GB HBM3".
std::string name_of(Device device);

/// Its place on the bus, which tells GPUs of a host apart whatever numbers their processes give
/// them; empty for the host.
std::string bus_of(Device device);

/// Waits until everything that was asked of a device is done; errors of kernels show here at the
/// latest. Nothing on the host.
void synchronize(Device device);
/// The same for those who only measure time: an error is left to the next call.
void settle(Device device) noexcept;

/// Bytes of this process's tensors on a device; 0 for the host, whose tensors are not counted.
struct DeviceMemory {
  std::int64_t present = 0, peak = 0;
};
DeviceMemory device_memory(Device device);
/// Bytes of a device that no process has, which its driver is asked for; 0 for the host.
std::int64_t unused_device_memory(Device device);

/// "13.0, cuBLASLt 13.1.0, cuDNN 9.19.0, NCCL 2.28.9"; empty in a build without CUDA.
std::string cuda_versions();

}  // namespace reelmesh
