#pragma once
// Messages between ranks, and the transports that carry them.
#include <mpi.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/trace_message.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::comm {

class Group;

/// A tensor that is sent to, or received from, one rank of a group, on the host or on a device.
struct Message {
  int peer = 0;
  Tensor tensor;
};

/// A pending exchange of one transport. Its destructor waits until the memory of the messages is no
/// longer in use; it reports no errors.
class PendingExchange {
 public:
  PendingExchange() = default;
  PendingExchange(const PendingExchange&) = delete;
  PendingExchange& operator=(const PendingExchange&) = delete;
  virtual ~PendingExchange() = default;
  virtual void finish() = 0;  ///< waits for completion; called once
};

/// Pending messages. Keeps their tensors alive; no other code may access the tensors before
/// finish(). The messages make progress whenever the calling thread calls background()
/// (base/background.hpp).
class PendingMessages {
 public:
  PendingMessages() = default;
  /// recorded: rows of the messages for the trace; none if they are not recorded.
  PendingMessages(std::unique_ptr<PendingExchange> pending, std::vector<trace::Message> recorded)
      : pending_(std::move(pending)), recorded_(std::move(recorded)) {}
  /// Returns when all tensors may be used again: host tensors at once, device tensors by work
  /// enqueued after this call.
  void finish();

 private:
  std::unique_ptr<PendingExchange> pending_;
  std::vector<trace::Message> recorded_;
};

/// Exchanges a rank's device tensors with the ranks of one group and of all groups made from it.
class DeviceTransport : public std::enable_shared_from_this<DeviceTransport> {
 public:
  DeviceTransport() = default;
  DeviceTransport(const DeviceTransport&) = delete;
  DeviceTransport& operator=(const DeviceTransport&) = delete;
  virtual ~DeviceTransport() = default;
  virtual Transport transport() const = 0;
  /// The transport of messages among the ranks of `group`. independent: of those that may be begun
  /// long before others. What is expensive is made by the first call for these ranks. Collective.
  virtual std::shared_ptr<DeviceTransport> connected(const Group& group, bool independent) = 0;
  /// Begins messages between the ranks of `comm`. transport_ranks: for each rank of `comm` its rank
  /// in the group that was connected. All tensors are non-empty and on the device.
  virtual std::unique_ptr<PendingExchange> begin(MPI_Comm comm,
                                                 std::span<const int> transport_ranks,
                                                 std::span<const Message> sends,
                                                 std::span<const Message> receives) = 0;
};

/// Posts the messages of exchanges that were begun but not posted yet; set by the transport that
/// defers posting.
inline void (*post_begun_exchanges)() = nullptr;
/// Calls post_begun_exchanges if it is set. Must be called before this rank waits for others in
/// MPI, because they may wait for these messages, and before it posts messages of a later exchange,
/// because two ranks match their messages in the order of the exchanges.
inline void post_pending_messages() {
  if (post_begun_exchanges != nullptr) post_begun_exchanges();
}

}  // namespace reelmesh::comm
