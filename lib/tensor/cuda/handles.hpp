#pragma once
// Owners of CUDA's handles, and the check of every call.
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <mutex>

#include "base/handle.hpp"
#include "tensor/device.hpp"

namespace reelmesh::cuda {

/// Throws where a call failed: Error(unavailable) when memory, driver or device are lacking,
/// Error(internal) otherwise. Names the call and the device; the rank is the one that throws.
void check(cudaError_t status, const char* call);

using Stream = Handle<cudaStream_t, &cudaStreamDestroy>;
using Event = Handle<cudaEvent_t, &cudaEventDestroy>;
using Pinned = Handle<void*, &cudaFreeHost>;

/// A new stream of the thread's current device; the lower the priority's number, the sooner its
/// work is done.
Stream make_stream(int priority = 0);
/// Whether what the stream is asked for is recorded for a graph.
bool captures(cudaStream_t stream);

/// A new event, which keeps no time.
Event make_event();
/// Waits for what was on its stream when the event was recorded; watched (cuda::watch).
void wait(cudaEvent_t event);
/// Whether wait() would return at once. Not while a stream captures.
bool reached(cudaEvent_t event);

/// The stream on which this process computes on `device`, which becomes the calling thread's
/// current one. Lives as long as the process.
cudaStream_t stream(Device device);

/// The T of this process for a device, made by the first call. Never destroyed, as the stream that
/// it works on.
template <class T>
T& one_of(Device device) {
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
