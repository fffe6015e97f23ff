#include "emulated_gpu/stream.hpp"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>

#include "emulated_gpu/settings.hpp"

namespace reelmesh::emulated {
namespace {

std::minstd_rand& random() {
  static std::atomic<unsigned> streams = 0;
  thread_local std::minstd_rand generator(static_cast<unsigned>(::getpid()) * 1000 + ++streams);
  return generator;
}

}  // namespace

void execute(const Work& work) {
  if (const std::int64_t max = settings().delay; max > 0) {
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<std::int64_t>(0, max)(random())));
  }
  try {
    work.run();
  } catch (const std::exception& error) {
    stop(std::string(work.name) + " failed: " + error.what());
  }
}

void EventRecord::reach() {
  time_ = std::chrono::steady_clock::now();
  done_ = true;
  done_.notify_all();
}

WorkQueue::~WorkQueue() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
    more_.notify_one();
  }
  thread_.join();
}

void WorkQueue::push(Work work) {
  const std::scoped_lock lock(mutex_);
  works_.push_back(std::move(work));
  ++pushed_;
  more_.notify_one();
}

void WorkQueue::wait() {
  std::unique_lock lock(mutex_);
  const std::uint64_t target = pushed_;
  less_.wait(lock, [&] { return done_ >= target; });
}

bool WorkQueue::idle() {
  const std::scoped_lock lock(mutex_);
  return done_ == pushed_;
}

void WorkQueue::serve() {
  std::optional<Memory::Access> access;
  std::unique_lock lock(mutex_);
  while (true) {
    more_.wait(lock, [&] { return ending_ || !works_.empty(); });
    if (works_.empty()) return;
    Work work = std::move(works_.front());
    works_.pop_front();
    lock.unlock();
    if (!work.on_device) {
      access.reset();
    } else if (!access) {
      access.emplace();
    }
    execute(work);
    work = {};
    lock.lock();
    // Close the memory before anyone who waits for the last work goes on.
    if (works_.empty()) access.reset();
    ++done_;
    less_.notify_all();
  }
}

Graph::~Graph() {
  for (const Memory::Block& block : blocks) Memory::instance().give_back(block);
}

void Graph::run() const {
  if (settings().delay == 0) {
    for (const Node& node : nodes) execute(node.work);
    return;
  }
  std::vector<std::vector<std::size_t>> next(nodes.size());
  std::vector<std::size_t> missing(nodes.size()), ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    missing[i] = nodes[i].after.size();
    for (const std::size_t before : nodes[i].after) next[before].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random()() % ready.size()], ready.back());
    const std::size_t i = ready.back();
    ready.pop_back();
    execute(nodes[i].work);
    for (const std::size_t after : next[i]) {
      if (--missing[after] == 0) ready.push_back(after);
    }
  }
}

// None of these is destroyed: streams execute work until the process ends.
std::mutex& api() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

namespace {

std::set<cudaStream_t>& streams() {
  static auto& all = *new std::set<cudaStream_t>;
  return all;
}

}  // namespace

const std::set<cudaStream_t>& all_streams() { return streams(); }
bool exists(cudaStream_t stream) { return streams().contains(stream); }
void add_stream(cudaStream_t stream) { streams().insert(stream); }
void remove_stream(cudaStream_t stream) { streams().erase(stream); }

bool& in_host_function() {
  thread_local bool inside = false;
  return inside;
}

void wait_for_streams(int device) {
  std::vector<cudaStream_t> all;
  {
    const std::scoped_lock lock(api());
    for (cudaStream_t stream : streams()) {
      if (device < 0 || stream->device == device) all.push_back(stream);
    }
  }
  for (cudaStream_t stream : all) stream->queue.wait();
}

cudaError_t add_work(cudaStream_t stream, Work work) {
  if (!exists(stream)) return cudaErrorInvalidResourceHandle;
  if (in_host_function()) return cudaErrorNotPermitted;
  if (stream->capture == nullptr) {
    stream->queue.push(std::move(work));
    return cudaSuccess;
  }
  if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  std::vector<Graph::Node>& nodes = stream->capture->graph->nodes;
  std::vector<std::size_t> after = stream->last;
  if (work.in_launch_order) {
    std::optional<std::size_t>& last = stream->capture->last_in_order;
    if (last && std::find(after.begin(), after.end(), *last) == after.end()) after.push_back(*last);
    last = nodes.size();
  }
  nodes.push_back({std::move(work), std::move(after)});
  stream->last = {nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t stream, Work work) {
  const std::scoped_lock lock(api());
  return add_work(stream, std::move(work));
}

}  // namespace reelmesh::emulated
