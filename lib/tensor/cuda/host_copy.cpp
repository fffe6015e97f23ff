#include "tensor/cuda/host_copy.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"
#include "tensor/cuda/handles.hpp"

namespace reelmesh::cuda {
namespace {

// The stream of all copies of this process to a device.
struct CopyStream {
  explicit CopyStream(Device device) {
    cuda::stream(device);  // makes `device` the current one
    stream = make_stream();
  }
  Stream stream;
};

}  // namespace

struct HostCopy::State {
  Device device;
  Event event;
  bool captured = false, pending = false;

  void join() {
    if (!std::exchange(pending, false)) return;
    const cudaStream_t compute = stream(device);
    if (captured && !captures(compute)) return;
    check(cudaStreamWaitEvent(compute, event.get(), 0), "cudaStreamWaitEvent");
  }
  ~State() {
    try {
      join();
    } catch (const Error&) {
      cudaGetLastError();
    }
  }
};

std::shared_ptr<const void> pin(Device device, void* memory, std::int64_t bytes) {
  stream(device);  // makes `device` the current one
  const cudaError_t status =
      cudaHostRegister(memory, static_cast<std::size_t>(bytes), cudaHostRegisterDefault);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(Status::unavailable, "cannot pin {} of host memory for {}",
         format_bytes(static_cast<double>(bytes)), to_string(device));
  }
  check(status, "cudaHostRegister");
  return {memory, [](const void* pinned) {
            if (cudaHostUnregister(const_cast<void*>(pinned)) != cudaSuccess) cudaGetLastError();
          }};
}

HostCopy::HostCopy(Device device, void* into, const void* pinned, std::int64_t bytes)
    : state_(std::make_shared<State>()) {
  state_->device = device;
  state_->event = make_event();
  const cudaStream_t copies = device_instance<CopyStream>(device).stream.get();
  const cudaStream_t compute = stream(device);
  cudaEvent_t event = state_->event.get();
  state_->captured = captures(compute);
  check(cudaEventRecord(event, compute), "cudaEventRecord");
  check(cudaStreamWaitEvent(copies, event, 0), "cudaStreamWaitEvent");
  check(cudaMemcpyAsync(into, pinned, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                        copies),
        "cudaMemcpyAsync");
  check(cudaEventRecord(event, copies), "cudaEventRecord");
  state_->pending = true;
}

void HostCopy::finish() {
  const auto state = std::exchange(state_, nullptr);
  if (state != nullptr) state->join();
}

}  // namespace reelmesh::cuda
