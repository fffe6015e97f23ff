#pragma once
// Spans of work that a GPU does after the host has enqueued it: timestamps in its stream, read
// later.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <vector>

#include "base/trace.hpp"

namespace reelmesh::trace {

/// Timestamps in the stream of a device's work, read in the order in which they were enqueued.
/// Implemented by the CUDA backend, whose errors all functions may throw.
class DeviceClock {
 public:
  DeviceClock() = default;
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;
  virtual ~DeviceClock() = default;
  /// Waits until all work enqueued so far is done.
  virtual void wait() = 0;
  /// Compares the device's clock with now_ns(), for the timestamps enqueued from now on, none of
  /// which is earlier than the time returned. All work must be done and all timestamps read.
  virtual std::int64_t compare() = 0;
  /// Enqueues a timestamp: the time at which all work enqueued before it is done. Does not wait.
  virtual void stamp() = 0;
  /// Waits for the oldest `count` timestamps that were not read, and returns them as times of
  /// now_ns(), in ns; none is later than the call's return.
  virtual std::vector<std::int64_t> read(std::size_t count) = 0;
};

/// A span whose timestamps have not all been read.
struct PendingSpan {
  Span span;  ///< complete except for its times
  std::list<PendingSpan>::iterator self;
};

/// The spans that a device measures. Each is moved to Recorder::spans when its times are known.
class DeviceSpans {
 public:
  /// Timestamps that may be pending. With more, those of the older half are read, which waits for
  /// work that was enqueued long before.
  static constexpr std::size_t max_pending = 4096;

  explicit DeviceSpans(std::shared_ptr<DeviceClock> clock) : clock_(std::move(clock)) {}

  /// Begins a span of the work that is enqueued from now on. Throws an error kept by an earlier
  /// call.
  PendingSpan* begin();
  /// Ends it after the work enqueued so far; `values`: all of the span except its times. An error
  /// is kept.
  void end(PendingSpan& pending, const Span& values) noexcept;

  /// Waits for the device and moves all spans that have ended to Recorder::spans. Returns the
  /// time: no later span starts before it. Throws an error kept by an earlier call.
  std::int64_t settle();
  /// The same, but an error is kept for the next call.
  std::int64_t settle_keeping_errors() noexcept;

 private:
  struct Stamp {
    PendingSpan* span;
    bool is_end;
  };
  void stamp(PendingSpan& span, bool is_end);
  void read(std::size_t count);
  void throw_kept_error();

  std::shared_ptr<DeviceClock> clock_;
  bool compared_ = false;
  std::list<PendingSpan> pending_;
  std::deque<Stamp> stamps_;  ///< not read yet
  std::exception_ptr error_;
};

}  // namespace reelmesh::trace
