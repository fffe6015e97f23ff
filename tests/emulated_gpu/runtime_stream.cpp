// Streams and events of the emulated CUDA runtime.
#include <algorithm>

#include "emulated_gpu/settings.hpp"
#include "emulated_gpu/stream.hpp"

using namespace reelmesh::emulated;

namespace {
std::atomic<std::int64_t> events = 0;
}  // namespace

std::int64_t reelmesh::emulated::live_events() { return events; }

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
  *stream = new CUstream_st;
  (*stream)->device = device;
  const std::scoped_lock lock(api());
  add_stream(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::scoped_lock lock(api());
    if (!exists(stream)) return result(cudaErrorInvalidResourceHandle);
    if (stream->capture != nullptr) stream->capture->invalid = true;
    remove_stream(stream);
  }
  delete stream;  // waits for its work
  return cudaSuccess;
}

namespace {

// Status of a call that queries or waits for a stream. Such a call invalidates a capture.
cudaError_t may_look_at(cudaStream_t stream) {
  const std::scoped_lock lock(api());
  if (!exists(stream)) return cudaErrorInvalidResourceHandle;
  if (in_host_function()) return cudaErrorNotPermitted;
  if (stream->capture == nullptr) return cudaSuccess;
  stream->capture->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

// The same for an event; also returns its last record, null if there is none.
cudaError_t may_look_at(cudaEvent_t event, std::shared_ptr<EventRecord>& record) {
  const std::scoped_lock lock(api());
  if (event->captured != nullptr) {
    event->captured->invalid = true;
    return cudaErrorCapturedEvent;
  }
  record = event->record;
  return check_capture_allows();
}

}  // namespace

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t status = may_look_at(stream); status != cudaSuccess) return result(status);
  stream->queue.wait();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t status = may_look_at(stream); status != cudaSuccess) return result(status);
  return stream->queue.idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
  {
    const std::scoped_lock lock(api());
    for (cudaStream_t stream : all_streams()) {
      if (stream->device != device || stream->capture == nullptr) continue;
      stream->capture->invalid = true;
      return result(cudaErrorStreamCaptureUnsupported);
    }
  }
  wait_for_streams(device);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const auto run = [=] {
    in_host_function() = true;
    function(data);
    in_host_function() = false;
  };
  return result(enqueue(stream, {"cudaLaunchHostFunc", run, false}));
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (settings().devices == 0) return result(cudaErrorNoDevice);
  *event = new CUevent_st;
  ++events;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::scoped_lock lock(api());
  delete event;
  --events;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::scoped_lock lock(api());
  if (!exists(stream)) return result(cudaErrorInvalidResourceHandle);
  event->captured = stream->capture;
  event->last = stream->last;
  if (stream->capture != nullptr) return cudaSuccess;
  event->record = std::make_shared<EventRecord>();
  return result(
      add_work(stream, {"cudaEventRecord", [record = event->record] { record->reach(); }}));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::scoped_lock lock(api());
  if (!exists(stream)) return result(cudaErrorInvalidResourceHandle);
  if (event->captured == nullptr) {
    // A captured stream can wait only for events of the same capture.
    if (stream->capture != nullptr) {
      stream->capture->invalid = true;
      return result(cudaErrorStreamCaptureIsolation);
    }
    if (event->record == nullptr) return cudaSuccess;
    return result(add_work(
        stream, {"cudaStreamWaitEvent", [record = event->record] { record->wait(); }, false}));
  }
  Capture& capture = *event->captured;
  if (!capture.streams.contains(capture.origin)) return result(cudaErrorCapturedEvent);  // ended
  if (stream->capture != nullptr && stream->capture != event->captured) {
    capture.invalid = stream->capture->invalid = true;
    return result(cudaErrorStreamCaptureMerge);
  }
  stream->capture = event->captured;
  capture.streams.insert(stream);
  for (const std::size_t node : event->last) {
    if (std::find(stream->last.begin(), stream->last.end(), node) == stream->last.end()) {
      stream->last.push_back(node);
    }
  }
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::shared_ptr<EventRecord> record;
  if (const cudaError_t status = may_look_at(event, record); status != cudaSuccess) {
    return result(status);
  }
  if (record != nullptr) record->wait();
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  std::shared_ptr<EventRecord> record;
  if (const cudaError_t status = may_look_at(event, record); status != cudaSuccess) {
    return result(status);
  }
  return record == nullptr || record->reached() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::scoped_lock lock(api());
  if (!begin->timed || !end->timed || begin->record == nullptr || end->record == nullptr) {
    return result(cudaErrorInvalidResourceHandle);
  }
  if (!begin->record->reached() || !end->record->reached()) return cudaErrorNotReady;
  using Milliseconds = std::chrono::duration<float, std::milli>;
  *milliseconds = Milliseconds(end->record->time() - begin->record->time()).count();
  return cudaSuccess;
}
