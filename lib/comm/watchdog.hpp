#pragma once
// Notices ranks that are lost or hang, passes requests to stop from one rank to all, and counts
// the tasks that ranks take from queues.
#include <vector>

#include "comm/activities.hpp"
#include "comm/group.hpp"
#include "comm/heartbeat.hpp"
#include "comm/task_counter.hpp"

namespace reelmesh::comm {

/// A thread of this rank that exchanges heartbeats with rank 0 over TCP, four times a second,
/// whatever the pipeline's thread does. It calls no MPI.
///
/// Rank 0 ends the job with status 76 and one message if
/// - a rank has sent nothing for `timeout` (its process is stopped, or its host or network lost);
/// - a rank's process has ended without saying so, and nobody has ended the job for 5 s;
/// - a rank's process has said that it ends, and has not ended after `timeout`;
/// - all ranks have waited, for others or for files that they write, for `timeout` without any
///   progress.
/// The message says what the rank was doing: stage, clip, step, layer, and the call in which it
/// waits. A rank that hears nothing from rank 0 for `timeout` ends with status 76 by itself.
/// A rank that computes is never ended, however long it takes. Time in which this process was
/// itself suspended (by a scheduler) does not count.
///
/// Heartbeats carry requests to stop, and to plan again: one on any rank becomes one on all.
///
/// Where rank 0 cannot be reached over TCP, a warning says how many ranks are not watched.
///
/// Rank 0's thread also counts the tasks that are taken from queues, so that ranks which are free
/// can take the next task while the pipeline's thread of rank 0 computes (README.md: alternatives,
/// measured).
class Watchdog {
 public:
  /// Collective over `world`.
  Watchdog(const Group& world, const WatchdogSettings& settings);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Ends the thread, as the destructor does, after all ranks have called it: until then they watch
  /// each other. On rank 0 it returns when the connections of all others have ended, which happens
  /// when their objects are destroyed or, in a program that keeps them, with their processes. From
  /// then on nobody watches rank 0: with `guarded` a child process kills it with SIGKILL, after a
  /// message, if it does not end in three times `timeout`.
  void end(bool guarded = false);

  /// Whether all ranks reach rank 0, so that they can take tasks; the same on all ranks.
  bool has_queues() const { return heartbeat_.reaches_all(); }
  /// Takes a task from a queue. → how many had been taken before; ranks never get the same answer.
  /// Only with has_queues(). Called by the pipeline's thread; returns in about a millisecond,
  /// whatever rank 0 does.
  std::int64_t take(int queue);
  static constexpr int reports = -1;  ///< the queue of reports of a failure, of which one is made

  /// On rank 0: what each rank does that can reach it. Elsewhere empty. Any thread.
  std::vector<Activity> activities() const { return activities_.last(); }

 private:
  HeartbeatHooks hooks();

  int rank_;
  double guard_seconds_;   // for the end of this process; 0 if it needs no guard
  TaskCounter counter_;    // on rank 0
  TaskRequests requests_;  // elsewhere
  Activities activities_;
  Heartbeat heartbeat_;  // last member: its thread uses the others
};

}  // namespace reelmesh::comm
