#include "tensor/cuda/stream_clock.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "base/error.hpp"
#include "tensor/cuda/handles.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::cuda {
namespace {

// cudaEventElapsedTime returns float32 milliseconds: up to this value they are exact to 0.2 µs.
constexpr float max_exact_ms = 2000;

class StreamClock final : public trace::DeviceClock {
 public:
  explicit StreamClock(Device device) : device_(device), stream_(stream(device)) {}

  void wait() override { cuda::synchronize(device_); }

  std::int64_t compare() override {
    expect(pending_.empty(), "{} timestamps are not read", pending_.size());
    if (!reference_) reference_ = make_timing_event();
    // As the stream is idle, its time is that of this call or a few microseconds later.
    reference_ns_ = trace::now_ns();
    record(reference_);
    cuda::wait(reference_.get());
    return reference_ns_;
  }

  void stamp() override {
    Event event;
    if (free_.empty()) {
      event = make_timing_event();
    } else {
      event = std::move(free_.back());
      free_.pop_back();
    }
    record(event);
    pending_.push_back(std::move(event));
  }

  std::vector<std::int64_t> read(std::size_t count) override {
    std::vector<std::int64_t> times;
    if (count == 0) return times;
    expect(count <= pending_.size(), "{} of {} timestamps", count, pending_.size());
    cuda::wait(pending_[count - 1].get());
    const std::int64_t now = trace::now_ns();
    for (std::size_t i = 0; i < count; ++i) {
      Event event = std::move(pending_.front());
      pending_.pop_front();
      float ms = 0;
      check(cudaEventElapsedTime(&ms, reference_.get(), event.get()), "cudaEventElapsedTime");
      const std::int64_t time = reference_ns_ + std::llround(1e6 * double{ms});
      times.push_back(std::min(now, time));
      if (ms > max_exact_ms) {
        std::swap(reference_, event);
        reference_ns_ = time;
      }
      free_.push_back(std::move(event));
    }
    return times;
  }

 private:
  void record(const Event& event) {
    check(cudaEventRecord(event.get(), stream_), "cudaEventRecord");
  }

  Device device_;
  cudaStream_t stream_;
  Event reference_;
  std::int64_t reference_ns_ = 0;  ///< the reference as a time of now_ns()
  std::deque<Event> pending_;      ///< not read yet
  std::vector<Event> free_;
};

}  // namespace

std::shared_ptr<trace::DeviceClock> stream_clock(Device device) {
  return std::make_shared<StreamClock>(device);
}

}  // namespace reelmesh::cuda
