#pragma once
// Owners of CUDA's handles, and the check of every call.
#include <cuda_runtime.h>

#include "base/handle.hpp"
#include "tensor/device.hpp"

namespace reelmesh::cuda {

/// Throws where a call failed: Error(unavailable) when memory, driver or device are lacking,
/// Error(internal) otherwise. Names the call and the device; the rank is the one that throws.
void check(cudaError_t status, const char* call);

using Stream = Handle<cudaStream_t, &cudaStreamDestroy>;
using Event = Handle<cudaEvent_t, &cudaEventDestroy>;
using Pinned = Handle<void*, &cudaFreeHost>;

/// The stream on which this process computes on `device`, which becomes the calling thread's
/// current one. Lives as long as the process.
cudaStream_t stream(Device device);

/// Major·10 + minor: 75 for a T4, 90 for an H100.
int compute_capability(Device device);

}  // namespace reelmesh::cuda
