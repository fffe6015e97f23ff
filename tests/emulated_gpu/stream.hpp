#pragma once
// Streams, events and graphs of the emulated GPU, and how work is enqueued.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "cuda_runtime.h"
#include "emulated_gpu/memory.hpp"

namespace reelmesh::emulated {

/// One piece of device work: a kernel, copy, library call, …
struct Work {
  const char* name;  ///< for messages
  /// Must hold its operands by value: a graph runs it again at every launch. An exception that it
  /// throws ends the process.
  std::function<void()> run;
  bool on_device = true;  ///< whether device memory is accessible while it runs
  /// Within a capture: runs after earlier work of this kind on any stream.
  bool in_launch_order = false;
};

/// Enqueues work on a stream: executed later by the stream's thread, after all earlier work, or
/// recorded in the graph while the stream is being captured.
cudaError_t enqueue(cudaStream_t stream, Work work);

/// Sleeps for a random time of at most Settings::delay, then runs the work.
void execute(const Work& work);

/// A recorded event: a point in a stream that others can wait for.
class EventRecord {
 public:
  void reach();
  void wait() const { done_.wait(false); }
  bool reached() const { return done_; }
  std::chrono::steady_clock::time_point time() const { return time_; }  ///< valid once reached

 private:
  std::atomic<bool> done_ = false;
  std::chrono::steady_clock::time_point time_;
};

/// A thread that executes pieces of work one after the other.
class WorkQueue {
 public:
  WorkQueue() : thread_([this] { serve(); }) {}
  ~WorkQueue();  ///< waits for all work
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  void push(Work work);
  void wait();  ///< for all work pushed before the call
  bool idle();

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable more_, less_;
  std::deque<Work> works_;
  std::uint64_t pushed_ = 0, done_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

/// Captured work in the order of capture; `after`: indices of the nodes that a node depends on.
struct Graph {
  struct Node {
    Work work;
    std::vector<std::size_t> after;
  };
  std::vector<Node> nodes;
  std::vector<Memory::Block> blocks;  ///< memory that it allocates; reserved while it exists
  std::vector<Memory::Block> kept;    ///< those of them that a launch leaves allocated
  int executables = 0;
  ~Graph();
  void run() const;  ///< in order of capture; with Settings::delay in random topological order
};

/// A capture in progress: the origin stream and the streams that joined it by events.
struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread = std::this_thread::get_id();
  std::set<cudaStream_t> streams;
  std::optional<std::size_t> last_in_order;  ///< node of the last work in launch order
  /// Blocks that a stream freed within the capture, by size; reused for later allocations.
  std::map<std::pair<cudaStream_t, std::size_t>, std::vector<Memory::Block>> freed;
  bool invalid = false;
};

/// Protects the state of streams, events and captures; never held while waiting for work.
std::mutex& api();
/// Returns the status of a call, and keeps an error for cudaGetLastError.
cudaError_t result(cudaError_t status);
bool exists(cudaStream_t stream);
const std::set<cudaStream_t>& all_streams();
void add_stream(cudaStream_t stream);
void remove_stream(cudaStream_t stream);
/// Whether the calling thread runs a host function of a stream, which may not call CUDA.
bool& in_host_function();
/// Status of a call that is not allowed during a capture: cudaSuccess, or an error that also
/// invalidates the capture. Requires api() to be held.
cudaError_t check_capture_allows();
/// Waits for all streams of a device, or of all devices (−1). api() must not be held.
void wait_for_streams(int device);
/// Events that were created and not destroyed.
std::int64_t live_events();
/// As enqueue(); requires api() to be held.
cudaError_t add_work(cudaStream_t stream, Work work);

}  // namespace reelmesh::emulated

struct CUstream_st {
  int device = 0;
  reelmesh::emulated::WorkQueue queue;
  std::shared_ptr<reelmesh::emulated::Capture> capture;
  std::vector<std::size_t> last;  ///< captured nodes that the next node depends on
};

struct CUevent_st {
  bool timed = true;
  std::shared_ptr<reelmesh::emulated::EventRecord> record;  ///< the last one, if not captured
  std::shared_ptr<reelmesh::emulated::Capture> captured;    ///< the capture of the last record
  std::vector<std::size_t> last;
};

struct CUgraph_st {
  std::shared_ptr<reelmesh::emulated::Graph> graph;
};

struct CUgraphExec_st {
  std::shared_ptr<reelmesh::emulated::Graph> graph;
  bool frees = false;  ///< auto-free: a launch first frees what the last one left allocated
};
