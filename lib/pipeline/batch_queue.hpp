#pragma once
// Which replica makes which batch.
#include <optional>

#include "comm/watchdog.hpp"
#include "plan/queues.hpp"

namespace reelmesh::pipeline {

/// The batches that a replica takes from a queue that it shares with others, one after the other:
/// whenever it is free, by the watchdog's task counter, or in turns without one.
class BatchQueue {
 public:
  /// group: the ranks that work on the batches of this replica. queues: of all replicas. counter:
  /// may be null. number: of the first of these queues in the counter.
  BatchQueue(const comm::Group& group, std::size_t replica, const Queues& queues,
             comm::Watchdog* counter, int number)
      : group_(group), replica_(replica), queues_(queues), counter_(counter), number_(number) {}

  /// The next of `batches` batches, the same on all ranks of the group; none if there is none left,
  /// or if the job is to stop on any of these ranks. Collective over the group.
  std::optional<std::size_t> next_together(std::size_t batches);
  /// Whether next_together() has found that the job is to stop.
  bool stopped() const { return stopped_; }

 private:
  comm::Group group_;
  std::size_t replica_;
  Queues queues_;
  comm::Watchdog* counter_;
  int number_;
  std::size_t turn_ = 0;  ///< batches taken
  bool stopped_ = false;
};

/// Whether a job is to stop, agreed by the ranks of a group. Asked before each piece of a long
/// series of work, it exchanges messages only about every 5 s, so that ranks that pass work on to
/// each other need not wait for the slowest.
class PacedVote {
 public:
  explicit PacedVote(const comm::Group& group);
  /// Collective over the group, when the pace says so.
  bool stop_together();

 private:
  comm::Group group_;
  bool stopped_ = false;
  std::int64_t interval_ = 1, left_ = 1;  ///< pieces
  std::int64_t last_;                     ///< trace::now_ns()
};

}  // namespace reelmesh::pipeline
