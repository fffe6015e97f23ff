#pragma once
// Records messages for traces.
#include <mpi.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/trace.hpp"
#include "comm/messages.hpp"

namespace reelmesh::comm {

/// A communicator in traces: its number, and how many messages each pair of ranks has recorded on
/// it.
class TraceChannel {
 public:
  /// Agrees on a number that is unique within the job; MPI_COMM_WORLD has 0. Collective.
  explicit TraceChannel(MPI_Comm comm);

  /// Rows of messages that begin now. Their sender and receiver begin those of a tag in the same
  /// order; in traces each tag is a channel of its own.
  std::vector<trace::Message> begin(std::span<const Message> sends,
                                    std::span<const Message> receives, int tag);
  /// A row of one message; peer: rank of the communicator.
  trace::Message begin(int peer, bool sends, std::int64_t bytes, int tag = 0);

 private:
  MPI_Comm comm_;
  std::int64_t number_ = 0;
  // For each rank of the communicator its rank in MPI_COMM_WORLD; empty until the first message is
  // recorded.
  std::vector<int> world_ranks_;
  // By tag, for each rank of the communicator: messages to it and from it.
  std::map<int, std::vector<std::int64_t>> sent_, received_;
};

/// Completes rows of TraceChannel::begin(), and gives them to the recorder.
void record_completed(std::vector<trace::Message> rows);

/// For each rank of `comm` its rank in `other`, which contains all of them.
std::vector<int> ranks_in(MPI_Comm comm, MPI_Comm other);

}  // namespace reelmesh::comm
