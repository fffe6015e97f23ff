#pragma once
// Copies from pinned host memory that overlap with computation. Uses no CUDA types, so that builds
// without CUDA can include this file.
#include <cstdint>
#include <memory>

#include "tensor/device.hpp"

namespace reelmesh::cuda {

/// Pins host memory (cudaHostRegister) for as long as the result lives. The memory must live
/// longer. Throws Error(unavailable) if the driver refuses, for instance because of a limit (ulimit
/// -l).
std::shared_ptr<const void> pin(Device device, void* memory, std::int64_t bytes);

/// A pending copy from pinned memory to a device, on a stream of its own. It begins after all work
/// enqueued so far on the compute stream. When its last owner is gone, the compute stream waits for
/// it, as after finish(), but errors are not reported.
class HostCopy {
 public:
  HostCopy() = default;
  HostCopy(Device device, void* into, const void* pinned, std::int64_t bytes);
  /// Makes the compute stream wait for the copy. The host waits for nothing. Does nothing for a
  /// copy that was captured in a graph whose capture is over: such a copy runs with the graph only.
  void finish();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace reelmesh::cuda
