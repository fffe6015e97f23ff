#pragma once
// Messages between ranks, and the transports that carry them.
#include <mpi.h>

#include <memory>
#include <span>

#include "tensor/tensor.hpp"

namespace reelmesh::comm {

/// A tensor that is sent to, or received from, one rank of a group, on the host or on a device.
struct Message {
  int peer = 0;
  Tensor tensor;
};

/// A pending transfer of one transport. Its destructor waits as long as the memory of the messages
/// is in use, and reports no errors.
class PendingExchange {
 public:
  PendingExchange() = default;
  PendingExchange(const PendingExchange&) = delete;
  PendingExchange& operator=(const PendingExchange&) = delete;
  virtual ~PendingExchange() = default;
  virtual void finish() = 0;  ///< once
};

/// Messages that are on their way. It keeps their tensors alive; no other code touches those until
/// they have arrived. The calling thread helps them along whenever it calls background()
/// (base/background.hpp).
class Transfer {
 public:
  Transfer() = default;
  explicit Transfer(std::unique_ptr<PendingExchange> pending) : pending_(std::move(pending)) {}
  /// Returns when all tensors may be used again; those of a device by what the device is asked for
  /// from now on.
  void finish() {
    if (const auto pending = std::move(pending_)) pending->finish();
  }

 private:
  std::unique_ptr<PendingExchange> pending_;
};

/// The transport of a rank's device tensors to the ranks of one group and of all groups made from
/// it.
class DeviceTransport {
 public:
  DeviceTransport() = default;
  DeviceTransport(const DeviceTransport&) = delete;
  DeviceTransport& operator=(const DeviceTransport&) = delete;
  virtual ~DeviceTransport() = default;
  virtual Transport transport() const = 0;
  /// Messages between ranks of a group with this communicator; transport_ranks: for each of its
  /// ranks the rank in the group that the transport was made for. None is empty, all are on the
  /// device.
  virtual std::unique_ptr<PendingExchange> begin(MPI_Comm comm,
                                                 std::span<const int> transport_ranks,
                                                 std::span<const Message> sends,
                                                 std::span<const Message> receives) = 0;
};

/// Posts the messages of transfers that have begun without posting them; set by the transport that
/// has such transfers.
inline void (*post_begun_transfers)() = nullptr;
/// Calls it where it is set. To be called before this rank waits for others by MPI, because they
/// may wait for these messages, and before it posts messages of a later transfer, because two ranks
/// match their messages in the order of the transfers.
inline void post_pending_messages() {
  if (post_begun_transfers != nullptr) post_begun_transfers();
}

}  // namespace reelmesh::comm
