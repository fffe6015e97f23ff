#pragma once
// Many ranks beside rank 0, as its heartbeat sees them, in one thread of one process.
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "comm/beat.hpp"
#include "comm/sockets.hpp"

namespace reelmesh::test {

/// Connections to rank 0, numbered from 1, that send beats when they are told to.
class ManyRanks {
 public:
  /// announcement: of rank 0.
  explicit ManyRanks(const std::string& announcement) {
    std::istringstream(announcement) >> port_ >> token_;
  }

  /// `count` more ranks connect, and send their first beats.
  void connect(int count) {
    for (int i = 0; i < count; ++i) {
      channels_.emplace_back(comm::connect_to("127.0.0.1", port_, 5), sizeof(comm::Beat));
      send(size());
    }
  }
  int size() const { return static_cast<int>(channels_.size()); }
  void send(int rank, comm::Beat::Kind kind = comm::Beat::alive) {
    comm::Beat beat;
    beat.token = token_;
    beat.rank = rank;
    beat.kind = kind;
    channel(rank).send(&beat);
  }
  std::optional<comm::Beat> receive(int rank) {
    comm::Beat beat;
    return channel(rank).receive(&beat) ? std::optional(beat) : std::nullopt;
  }
  bool open(int rank) { return channel(rank).open(); }
  /// All but the first say that they end.
  void leave(int first = 0) {
    for (int rank = first + 1; rank <= size(); ++rank) send(rank, comm::Beat::leaving);
  }
  void close() { channels_.clear(); }

 private:
  comm::Channel& channel(int rank) { return channels_.at(static_cast<std::size_t>(rank - 1)); }

  std::uint16_t port_ = 0;
  std::uint64_t token_ = 0;
  std::vector<comm::Channel> channels_;
};

}  // namespace reelmesh::test
