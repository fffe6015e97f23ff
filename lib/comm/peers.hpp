#pragma once
// What a rank knows of others by their heartbeats, and what follows from it: pure functions of that
// and of the time, in seconds.
#include <optional>
#include <span>
#include <string>

#include "comm/beat.hpp"

namespace reelmesh::comm {

/// What rank 0 knows of a rank, itself included, or another rank of rank 0.
struct Peer {
  Beat last;
  double heard = 0;        ///< when
  double progressed = 0;   ///< when it last computed, or ended a call in which it waited
  bool connected = false;  ///< now or earlier; true for the rank itself
  bool open = false;       ///< its connection; the rank itself has none
  bool left = false;       ///< has announced that its process ends
  std::optional<double> disconnected;  ///< when its connection closed without Beat::leaving

  void connect(const Beat& first, double now);
  void hear(const Beat& beat, double now);
  /// Its open connection has closed.
  void disconnect(double now);
  /// Moves all times by the time in which this process was suspended, and heard nobody.
  void extend(double seconds);
};

/// Whether all of them that were ever connected have announced that their processes end.
bool all_have_left(std::span<const Peer> peers);

/// The first peer that is lost: it has sent nothing for `timeout`; or its connection closed 5 s ago
/// without Beat::leaving, time that a launcher has to end the job. One that has left and whose
/// connection has closed is not lost.
std::optional<int> find_lost(std::span<const Peer> peers, double now, double timeout);
/// Why the job ends because of it.
std::string lost_message(const Peer& peer, double timeout);

/// Whether all ranks have waited for others for `timeout` without progress. false if there is one
/// that was never connected.
bool all_wait(std::span<const Peer> peers, double now, double timeout);
std::string deadlock_message(std::span<const Peer> peers, double timeout);

/// Whether a job may be ended at once on request: all ranks know of the request, and none has
/// unsaved work.
bool may_stop(std::span<const Peer> peers);

}  // namespace reelmesh::comm
