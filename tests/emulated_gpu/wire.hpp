#pragma once
// Messages between the processes of the emulated NCCL: one socket for each pair of ranks.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace reelmesh::emulated {

/// A message to or from one rank.
struct Message {
  int peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

class Connections {
 public:
  /// Returns when all ranks that use this name are connected. hello: a short text that every rank
  /// sends to all others.
  Connections(const std::string& name, int rank, int ranks, const std::string& hello);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  const std::vector<std::string>& hellos() const { return hellos_; }  ///< of all ranks

  /// Makes all transfers concurrently, in whatever order peers are ready. captured: whether they
  /// belong to a graph. Aborts the process if sender and receiver expect different sizes, or if
  /// only one of them has captured the message. Returns a rank that has disconnected, if any.
  std::optional<int> exchange(const std::vector<Message>& sends,
                              const std::vector<Message>& receives, bool captured);

 private:
  int connect_to(int peer) const;
  std::string socket_name(int rank) const;

  std::string name_;
  int rank_;
  std::vector<int> sockets_;  ///< to each rank; −1 for this one
  std::vector<std::string> hellos_;
};

}  // namespace reelmesh::emulated
