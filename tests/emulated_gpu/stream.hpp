#pragma once
// Streams of the emulated GPU: what CUDA's streams, events and graphs are made of here, and how
// work comes to them.
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

/// One piece of work of a device.
struct Work {
  const char* name;  ///< for messages
  /// A graph runs its work at every launch: what it needs is in it by value. An exception from it
  /// ends the process.
  std::function<void()> run;
  bool on_device = true;  ///< whether the memory of devices can be touched
};

/// Asks for work on a stream, after all that was asked for before: done some time later by the
/// stream's thread, or kept for a graph while the stream captures.
cudaError_t enqueue(cudaStream_t stream, Work work);

/// Waits a random time where Settings::delay says so, then runs the work.
void execute(const Work& work);

/// A point in a stream that others wait for.
class Moment {
 public:
  void reach();
  void wait() const { done_.wait(false); }
  bool reached() const { return done_; }
  std::chrono::steady_clock::time_point time() const { return time_; }  ///< once it is reached

 private:
  std::atomic<bool> done_ = false;
  std::chrono::steady_clock::time_point time_;
};

/// A thread that does one piece of work after the other.
class Queue {
 public:
  Queue() : thread_([this] { serve(); }) {}
  ~Queue();  ///< when all is done
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  void push(Work work);
  void wait();  ///< for what was pushed before
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

/// Work in the order in which it was asked for, and what each piece has to wait for.
struct Graph {
  struct Node {
    Work work;
    std::vector<std::size_t> after;
  };
  std::vector<Node> nodes;
  std::vector<Memory::Block> blocks;  ///< taken for as long as the graph exists
  std::vector<Memory::Block> kept;    ///< those that a launch does not free
  int executables = 0;
  ~Graph();
  void run() const;  ///< in any order that `after` allows where there are delays
};

/// A stream's work on its way into a graph, with that of streams that joined it.
struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread = std::this_thread::get_id();
  std::set<cudaStream_t> streams;
  /// What a stream has freed, by its size: for what it asks for later.
  std::map<std::pair<cudaStream_t, std::size_t>, std::vector<Memory::Block>> freed;
  bool invalid = false;
};

/// Held by whoever looks at the state of streams, events and captures; never while waiting.
std::mutex& api();
/// The result of a call, kept for cudaGetLastError.
cudaError_t result(cudaError_t status);
bool exists(cudaStream_t stream);
const std::set<cudaStream_t>& all_streams();
void add_stream(cudaStream_t stream);
void remove_stream(cudaStream_t stream);
/// Whether the calling thread runs a host function of a stream, which may not call CUDA.
bool& in_host_function();
/// What a call that may interfere with a capture gives: cudaSuccess, or an error after which the
/// capture is void. With api() held.
cudaError_t beside_captures();
/// Waits for all streams of a device, or of all devices (−1). Without api() held.
void wait_for_streams(int device);
/// As enqueue(), with api() held.
cudaError_t add_work(cudaStream_t stream, Work work);

}  // namespace reelmesh::emulated

struct CUstream_st {
  int device = 0;
  reelmesh::emulated::Queue queue;
  std::shared_ptr<reelmesh::emulated::Capture> capture;
  std::vector<std::size_t> last;  ///< nodes of the capture that the next one waits for
};

struct CUevent_st {
  bool timed = true;
  std::shared_ptr<reelmesh::emulated::Moment> moment;     ///< that was recorded last
  std::shared_ptr<reelmesh::emulated::Capture> captured;  ///< or the capture it was recorded in
  std::vector<std::size_t> last;
};

struct CUgraph_st {
  std::shared_ptr<reelmesh::emulated::Graph> graph;
};

struct CUgraphExec_st {
  std::shared_ptr<reelmesh::emulated::Graph> graph;
  bool frees = false;  ///< memory of the last launch that was not freed since
};
