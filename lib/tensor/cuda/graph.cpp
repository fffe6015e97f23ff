#include "tensor/cuda/graph.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/trace.hpp"
#include "tensor/cuda/handles.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::cuda {
namespace {

using Recorded = Handle<cudaGraph_t, &cudaGraphDestroy>;
using Executable = Handle<cudaGraphExec_t, &cudaGraphExecDestroy>;

// Ends the capture if `work` throws.
struct Capture {
  cudaStream_t stream;
  bool pending_count = true;
  Recorded end() {
    pending_count = false;
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    return Recorded(graph);
  }
  ~Capture() {
    if (!pending_count) return;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    cudaGetLastError();  // clears the error that the capture ended early
  }
};

}  // namespace

struct Graph::State {
  Device device;
  Executable executable;
  std::shared_ptr<const void> memory;  ///< counts the memory that the graph holds
  std::int64_t flops = 0, memory_bytes = 0, bytes_sent = 0, bytes_fetched = 0, padded_products = 0;
  ~State() {
    executable.reset();
    try {
      trim_memory_pool(device);
    } catch (const Error&) {  // for instance of a kernel: the next call reports it too
    }
  }
};

Graph::Graph(Device device, const std::function<void()>& work) : state_(new State{device}) {
  const cudaStream_t queue = stream(device);
  trace::Recorder& recorder = trace::recorder();
  const std::int64_t flops = recorder.flops, memory_bytes = recorder.memory_bytes,
                     bytes_sent = recorder.bytes_sent, bytes_fetched = recorder.bytes_fetched,
                     padded_products = recorder.padded_products;
  const std::int64_t before = memory(device).present;
  peak_since_last(device);
  check(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  Capture capture{queue};
  work();
  const Recorded recorded = capture.end();
  // Allocations made during capture belong to the graph and are freed with it; and a graph cannot
  // free earlier ones.
  const std::int64_t left = memory(device).present - before;
  expect(left == 0, "work of a graph left {} bytes more on {} than there were", left,
         to_string(device));
  state_->memory = count(device, peak_since_last(device) - before);
  // Counted when the graph is replayed.
  state_->flops = std::exchange(recorder.flops, flops) - flops;
  state_->memory_bytes = std::exchange(recorder.memory_bytes, memory_bytes) - memory_bytes;
  state_->bytes_sent = std::exchange(recorder.bytes_sent, bytes_sent) - bytes_sent;
  state_->bytes_fetched = std::exchange(recorder.bytes_fetched, bytes_fetched) - bytes_fetched;
  state_->padded_products =
      std::exchange(recorder.padded_products, padded_products) - padded_products;
  // Returns free memory to the device, so that the graph can have it.
  trim_memory_pool(device);
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, recorded.get(), 0), "cudaGraphInstantiate");
  state_->executable = Executable(executable);
  // Memory of the graph is allocated now, so that a lack of it is found here and not by a replay.
  check(cudaGraphUpload(executable, queue), "cudaGraphUpload");
}

Graph::~Graph() = default;

void Graph::replay() const {
  trace::recorder().flops += state_->flops;
  trace::recorder().memory_bytes += state_->memory_bytes;
  trace::recorder().bytes_sent += state_->bytes_sent;
  trace::recorder().bytes_fetched += state_->bytes_fetched;
  trace::recorder().padded_products += state_->padded_products;
  check(cudaGraphLaunch(state_->executable.get(), stream(state_->device)), "cudaGraphLaunch");
}

}  // namespace reelmesh::cuda
