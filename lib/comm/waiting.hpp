#pragma once
#include "base/trace.hpp"
#include "comm/messages.hpp"

namespace reelmesh::comm {

/// Tells the watchdog, and outside all stages the trace, that this rank waits for other ranks in a
/// call, until the end of the scope.
class WaitMark {
 public:
  /// call: a string literal such as "MPI_Wait".
  explicit WaitMark(const char* call) { trace::recorder().waiting = call; }
  ~WaitMark() {
    trace::Recorder& recorder = trace::recorder();
    recorder.waiting = nullptr;
    recorder.waits = recorder.waits + 1;
    record();
  }
  /// The wait so far is one in the trace, which something else may follow now.
  void record() {
    trace::record_wait(start_ns_);
    start_ns_ = trace::now_ns();
  }
  WaitMark(const WaitMark&) = delete;
  WaitMark& operator=(const WaitMark&) = delete;

 private:
  std::int64_t start_ns_ = trace::now_ns();
};

/// The same, after posting this rank's pending messages, for which others may wait.
class Waiting {
 public:
  explicit Waiting(const char* call) : mark_(call) { post_pending_messages(); }
  void record() { mark_.record(); }

 private:
  WaitMark mark_;
};

}  // namespace reelmesh::comm
