#pragma once
// Control messages between ranks that work at their own pace.
#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "comm/group.hpp"

namespace reelmesh::comm {

struct ControlMessage {
  int from = 0;  ///< rank of the group
  std::vector<std::int64_t> words;
};

/// Sends and receives control messages within a group. Messages between two ranks arrive in their
/// order. They have at most a few kilobytes and are sent without waiting for the receiver.
class Mailbox {
 public:
  /// Collective over the group.
  explicit Mailbox(const Group& group);
  /// Waits until the messages that this rank has sent have left it.
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// At least one word. Returns at once.
  void post(int to, std::vector<std::int64_t> words);
  /// The next message, from any rank, if one has arrived. Lets other messages of this rank
  /// progress.
  std::optional<ControlMessage> poll();
  /// Waits for the next message, but not much longer than `max`; none if none has come. The
  /// processor is free for other ranks meanwhile. The caller tells the watchdog (Waiting), once for
  /// all calls until a message comes: each call by itself would look like progress.
  std::optional<ControlMessage> wait(std::chrono::milliseconds max);

 private:
  struct Sent {
    std::vector<std::int64_t> words;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  Group group_;
  std::list<Sent> sent_;  ///< perhaps still in use by MPI
};

}  // namespace reelmesh::comm
