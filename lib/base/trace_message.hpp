#pragma once
#include <cstdint>

namespace reelmesh::trace {

/// A message that this rank has sent or received; recorded by lib/comm. A send and its receive have
/// the same sender, receiver, channel, number and bytes.
struct Message {
  int peer = 0;  ///< rank in MPI_COMM_WORLD
  bool sends = false;
  int clip = -1, step = -1, layer = -1;  ///< as of a Span, when the message was begun
  std::int64_t start_ns = 0;             ///< when it was begun
  std::int64_t duration_ns = 0;          ///< until this rank knew that it was complete
  std::int64_t bytes = 0;
  std::int64_t channel = 0;  ///< of a communicator; the same on all its ranks
  std::int64_t number = 0;   ///< among the recorded messages from sender to receiver on the channel
};

}  // namespace reelmesh::trace
