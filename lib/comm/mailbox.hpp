#pragma once
// Short messages between ranks that work at their own pace.
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "comm/group.hpp"

namespace reelmesh::comm {

struct Letter {
  int from = 0;  ///< rank of the group
  std::vector<std::int64_t> words;
};

/// Sends and receives letters within a group. Letters between two ranks arrive in their order. Of
/// at most a few kilobytes, they are sent without waiting for the receiver.
class Mailbox {
 public:
  /// Collective over the group.
  explicit Mailbox(const Group& group);
  /// Waits until the receivers have taken the letters that this rank has sent.
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// At least one word. Returns at once.
  void post(int to, std::vector<std::int64_t> words);
  /// The next letter, from any rank, if one has arrived. Lets other messages of this rank progress.
  std::optional<Letter> poll();
  /// Waits for the next letter. The processor is free for other ranks meanwhile.
  Letter wait();

 private:
  struct Sent {
    std::vector<std::int64_t> words;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  Group group_;
  std::list<Sent> sent_;  ///< not known to be received
};

}  // namespace reelmesh::comm
