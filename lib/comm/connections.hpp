#pragma once
// The TCP connections of the heartbeats: between rank 0 and each other rank.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/beat.hpp"
#include "comm/sockets.hpp"

namespace reelmesh::comm {

/// The connections of one rank: rank 0 has one to each other rank, which has this one only. Every
/// beat carries the job's random number, by which ranks of one job recognize each other. Only
/// one thread may use an object, except for wake(). Only connect() and wait() block. Rank 0 handles
/// a beat in a time that does not depend on the number of ranks.
class Connections {
 public:
  /// Files that rank 0 may open for other things: results, weights, MPI, NCCL.
  static constexpr std::int64_t other_files = 256;

  /// Error(unavailable) if the system refuses what it takes to wait.
  Connections(int rank, int size);

  /// On rank 0: listens on a free port of all addresses. → what other ranks need to connect; empty
  /// if the system refuses. Accepts as many connections as the limit of open files allows with
  /// other_files kept free; further ranks cannot connect.
  std::string listen();
  /// On other ranks: connects to the first address that answers, and sends it a beat. → its answer.
  /// Tries each address for 2 s, then each for 4 s, and waits 10 s for the answer; nullopt if all
  /// fail. Only 128 ranks start to connect every 10 ms, since the queue of connections that wait to
  /// be accepted has 128 places on older systems.
  std::optional<Beat> connect(const std::string& announcement, const Beat& first);
  /// On rank 0: the first beats of ranks that have connected since the last call.
  std::vector<Beat> accept();

  /// rank: that of the other end.
  bool open(int rank) const { return channel(rank).open(); }
  /// Drops the beat if there is no connection, or if the other end has not received earlier ones.
  void send(int rank, Beat beat);
  /// The next beat that has arrived. open() changes to false in this call only.
  std::optional<Beat> receive(int rank);

  struct Events {
    bool none = false;  ///< nothing has happened in that time
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
  std::optional<Beat> connect_once(const std::vector<std::string>& addresses, std::uint16_t port,
                                   const Beat& first, double seconds);
  void accept_newcomers();
  std::optional<Beat> identify(int descriptor);
  void stop_listening();

  int rank_;
  std::uint64_t token_ = 0;  // the job's random number
  Socket listener_, wake_;
  std::size_t max_connections_ = 0;
  std::map<int, Channel> unidentified_;  // by descriptor: connected, but not known to be a rank
  std::vector<Channel> channels_;        // by rank; on other ranks only to rank 0
  std::vector<bool> was_connected_;      // by rank
  std::size_t identified_ = 0;           // ranks that are, or were, connected
  ReadableSet newcomers_;                // listener_ and unidentified_, by descriptor
  ReadableSet readable_;                 // wake_, newcomers_, and channels_ by rank
};

}  // namespace reelmesh::comm
