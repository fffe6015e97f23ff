#pragma once
// The thread that exchanges heartbeats, and ends the job if they say that it cannot go on.
#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/connections.hpp"
#include "comm/group.hpp"
#include "comm/peers.hpp"

namespace reelmesh::comm {

struct WatchdogSettings {
  /// Seconds without a sign of life from a rank, or without progress of all ranks, after which the
  /// job is ended.
  double timeout = 600;
  /// Seconds after a request to stop, after which the job is ended at once if no rank has unsaved
  /// work (stop::UnsavedWork). Until then ranks are expected to agree and to end by themselves.
  double grace = 20;
};

/// What else heartbeats are used for. Called by the heartbeat's thread, also while the Heartbeat is
/// constructed.
struct HeartbeatHooks {
  /// What is sent with the next beat to this rank. All ranks.
  std::function<TaskMessage(int rank)> next_task;
  /// What came with a beat from this rank. → whether to send it a beat at once. All ranks.
  std::function<bool(int rank, const TaskMessage&)> task_received;
  /// On rank 0, at least four times a second: what it knows of all ranks, by rank, now.
  std::function<void(std::span<const Peer>, double now)> observed;
};

/// Heartbeats between rank 0 and the others (Watchdog says what they are for).
class Heartbeat {
 public:
  /// Collective over `world`.
  Heartbeat(const Group& world, const WatchdogSettings& settings, HeartbeatHooks hooks);
  /// Calls end().
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Ends the thread, as Watchdog::end().
  void end();
  bool running() const { return thread_.joinable(); }
  /// Whether all ranks reach rank 0; the same on all ranks.
  bool reaches_all() const { return reaches_all_; }
  /// What other ranks need to connect to rank 0, as they are told; on rank 0, for tests.
  const std::string& announcement() const { return announcement_; }
  /// On other ranks than 0: sends a beat now. Any thread.
  void send_now() { connections_.wake(); }

 private:
  /// How far the end of the job has come for this rank, in order.
  enum class End {
    none,
    wanted,     ///< end() is called; on rank 0: others have not announced their ends
    announced,  ///< this rank announces its end to the others
    done
  };
  End end_reached() const;
  void run();
  void serve_until_next_round(End told);
  void extend_deadlines();
  void answer_new_ranks();
  bool receive(int rank);
  void send_all(Beat::Kind kind, Status status = Status::ok);
  void send(int rank, Beat beat);
  void check_ranks();
  void check_first_rank();
  void check_stop();
  [[noreturn]] void end_job(Status status);

  WatchdogSettings settings_;
  HeartbeatHooks hooks_;
  int rank_;
  Connections connections_;
  std::string announcement_;
  std::vector<Peer> peers_;  // on rank 0: by rank, itself included; elsewhere: rank 0
  double last_round_ = 0;
  bool reaches_all_ = false;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace reelmesh::comm
