#pragma once
// Owning handles of CUDA objects, and check() for calls of the CUDA runtime.
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <mutex>

#include "base/handle.hpp"
#include "tensor/device.hpp"

namespace reelmesh::cuda {

/// Throws if a call failed: Error(unavailable) if memory, driver or device are missing, otherwise
/// Error(internal). The message names the call and the device.
void check(cudaError_t status, const char* call);

using Stream = Handle<cudaStream_t, &cudaStreamDestroy>;
using Event = Handle<cudaEvent_t, &cudaEventDestroy>;
using Pinned = Handle<void*, &cudaFreeHost>;

/// A new non-blocking stream of the thread's current device. Lower numbers mean higher priority.
Stream make_stream(int priority = 0);
/// Whether the stream is capturing a graph.
bool captures(cudaStream_t stream);

/// A new event without timing.
Event make_event();
/// A new event for cudaEventElapsedTime.
Event make_timing_event();
/// Waits for the work that precedes the event in its stream; calls cuda::watch meanwhile.
void wait(cudaEvent_t event);
/// Whether wait() would return at once. Must not be called while a stream is capturing.
bool reached(cudaEvent_t event);

/// The stream on which this process computes on `device`; never destroyed. Makes `device` the
/// calling thread's current device.
cudaStream_t stream(Device device);

/// The one T of this process for a device, constructed by the first call. Never destroyed, like the
/// stream that it uses.
template <class T>
T& device_instance(Device device) {
  static auto& mutex = *new std::mutex;
  static auto& all = *new std::map<int, std::unique_ptr<T>>;
  const std::lock_guard lock(mutex);
  auto& found = all[device.cuda];
  if (found == nullptr) found = std::make_unique<T>(device);
  return *found;
}

/// Major·10 + minor: 75 for a T4, 90 for an H100.
int compute_capability(Device device);

}  // namespace reelmesh::cuda
