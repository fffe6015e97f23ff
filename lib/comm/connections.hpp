#pragma once
// The TCP connections of the heartbeats: between rank 0 and each other rank.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/beat.hpp"
#include "comm/sockets.hpp"

namespace reelmesh::comm {

/// The connections of one rank: on rank 0 to the others, elsewhere to rank 0. All beats carry the
/// job's random number, so that ranks of other jobs, and other programs, are told apart. Used by
/// one thread, except wake(). Nothing blocks but connect() and wait().
class Connections {
 public:
  Connections(int rank, int size);

  /// On rank 0: listens on a free port of all addresses. → what other ranks need to connect; empty
  /// if the system refuses.
  std::string listen();
  /// Elsewhere: connects to the first address that answers, and sends it a beat. → its answer;
  /// nullopt if none answers within 2 s each.
  std::optional<Beat> connect(const std::string& announcement, const Beat& first);
  /// On rank 0: the first beats of ranks that have connected since the last call.
  std::vector<Beat> accept();

  /// rank: that of the other end.
  bool open(int rank) const { return channel(rank).open(); }
  /// Drops the beat if there is no connection, or if the other end has not received earlier ones.
  void send(int rank, Beat beat);
  /// The next beat that has arrived. The connection may close in this call only.
  std::optional<Beat> receive(int rank);

  struct Events {
    bool none = false;  ///< the time is over
    bool woken = false;
    bool connecting = false;    ///< accept() may find a rank
    std::vector<int> readable;  ///< ranks: receive() finds a beat, or that the connection closes
  };
  /// Waits until something happens, at most for so many seconds.
  Events wait(double seconds);
  /// Ends wait(). Any thread.
  void wake();

 private:
  const Channel& channel(int rank) const { return channels_.at(static_cast<std::size_t>(rank)); }
  Channel& channel(int rank) { return channels_.at(static_cast<std::size_t>(rank)); }
  bool identifies_rank(const Beat& first) const;

  int rank_;
  std::uint64_t token_ = 0;  // the job's random number
  Socket listener_, wake_;
  std::vector<Channel> unidentified_;  // connected, but not known to be a rank
  std::vector<Channel> channels_;      // by rank; on other ranks only to rank 0
  std::vector<bool> was_connected_;    // by rank
};

}  // namespace reelmesh::comm
