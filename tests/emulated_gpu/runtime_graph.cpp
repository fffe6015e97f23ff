// Stream capture and graphs of the emulated CUDA runtime.
#include <algorithm>

#include "emulated_gpu/stream.hpp"

namespace reelmesh::emulated {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

// Whether the last node of the origin stream depends on all other nodes.
bool joined(const Capture& capture) {
  const std::vector<Graph::Node>& nodes = capture.graph->nodes;
  std::vector<bool> reached(nodes.size());
  std::vector<std::size_t> open = capture.origin->last;
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    open.insert(open.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  return std::all_of(reached.begin(), reached.end(), [](bool yes) { return yes; });
}

void leave(Capture& capture) {
  for (cudaStream_t stream : capture.streams) {
    if (!exists(stream)) continue;
    stream->capture = nullptr;
    stream->last.clear();
  }
  capture.streams.clear();
}

// Marks the blocks that a launch leaves allocated as in use. cudaErrorInvalidValue if those of an
// earlier launch are not freed yet, unless the graph was instantiated with auto-free.
cudaError_t take_kept(const CUgraphExec_st& executable) {
  Memory& memory = Memory::instance();
  const std::vector<Memory::Block>& kept = executable.graph->kept;
  const bool free = std::all_of(kept.begin(), kept.end(), [&](const Memory::Block& block) {
    return memory.find(block.address)->free_requested;
  });
  if (!free && !executable.frees) return cudaErrorInvalidValue;
  for (const Memory::Block& block : kept) memory.set_free_requested(block, false);
  return cudaSuccess;
}

}  // namespace

cudaError_t check_capture_allows() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  for (cudaStream_t stream : all_streams()) {
    Capture* capture = stream->capture.get();
    if (capture == nullptr || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (capture->thread == std::this_thread::get_id() ||
        (capture->mode == cudaStreamCaptureModeGlobal &&
         thread_mode == cudaStreamCaptureModeGlobal)) {
      capture->invalid = true;
      return cudaErrorStreamCaptureUnsupported;
    }
  }
  return cudaSuccess;
}

}  // namespace reelmesh::emulated

using namespace reelmesh::emulated;

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const std::scoped_lock lock(api());
  if (!exists(stream)) return result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return result(cudaErrorInvalidValue);
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->mode = mode;
  stream->capture->streams.insert(stream);
  stream->last.clear();
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const std::scoped_lock lock(api());
  if (!exists(stream)) return result(cudaErrorInvalidResourceHandle);
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::scoped_lock lock(api());
  *graph = nullptr;
  if (!exists(stream)) return result(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return result(cudaErrorInvalidValue);
  if (capture->origin != stream) return result(cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    return result(cudaErrorStreamCaptureWrongThread);
  }
  const bool all_joined = joined(*capture);
  leave(*capture);
  if (capture->invalid) return result(cudaErrorStreamCaptureInvalidated);
  if (!all_joined) return result(cudaErrorStreamCaptureUnjoined);
  // A graph owns no memory until it is launched.
  for (const Memory::Block& block : capture->graph->blocks) {
    if (!Memory::instance().find(block.address)->free_requested) {
      capture->graph->kept.push_back(block);
    }
    Memory::instance().set_free_requested(block, true);
  }
  *graph = new CUgraph_st{capture->graph};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  const std::scoped_lock lock(api());
  // Two executables would write to the same memory.
  if (!graph->graph->blocks.empty() && graph->graph->executables > 0) {
    return result(cudaErrorNotSupported);
  }
  ++graph->graph->executables;
  *executable =
      new CUgraphExec_st{graph->graph, (flags & cudaGraphInstantiateFlagAutoFreeOnLaunch) != 0};
  return cudaSuccess;
}

// Nothing to do: memory of a graph is allocated when it is captured.
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  const std::scoped_lock lock(api());
  return result(executable != nullptr && exists(stream) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const std::scoped_lock lock(api());
  cudaError_t status = take_kept(*executable);
  if (status == cudaSuccess) {
    status = add_work(stream, {"cudaGraphLaunch", [graph = executable->graph] { graph->run(); }});
  }
  return result(status);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const std::scoped_lock lock(api());
  --executable->graph->executables;
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::scoped_lock lock(api());
  delete graph;
  return cudaSuccess;
}

// Nothing to do: a graph releases its memory when its last owner is destroyed.
cudaError_t cudaDeviceGraphMemTrim(int) { return cudaSuccess; }
