#pragma once
// MPI is owned by this room and nowhere else. All calls are made by the thread that called init.
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/transfer.hpp"

namespace reelmesh::comm {

/// MPI_Init_thread … MPI_Finalize. Make one in main, before any group. The MPI-IO component is set
/// to ROMIO (Open MPI's own swallows a full disk) unless the user's environment names one.
class Environment {
 public:
  Environment();
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
};

/// Ends all ranks of the job now with this exit status, whatever they are doing.
[[noreturn]] void abort_all(Status status);

/// An ordered set of ranks. A default-made Group has no ranks and this rank is not in it. Copies
/// share the communicator, which is freed with the last of them. Errors of MPI are
/// Error(internal) that name the call.
class Group {
 public:
  Group() = default;
  static Group world();
  /// The ranks of this group that share memory with this one (same host). Collective.
  Group on_this_host() const;
  /// Ranks [first, first + count) of this group; a rank outside gets an empty Group. Collective.
  Group range(int first, int count) const;
  /// The ranks of this group that give the same color, in their order; a rank with a negative color
  /// gets an empty Group. Collective.
  Group split(int color) const;

  /// The same ranks in another order: order[place] = rank of this group. Collective.
  Group in_order(const std::vector<int>& order) const;

  /// A group of the same ranks whose tensors on devices travel by `transport`, and those of all
  /// groups made from it: `device` is this rank's. automatic takes NCCL where every rank has a GPU
  /// of its own and NCCL can be loaded, else MPI. One communicator of NCCL serves all these groups,
  /// since only pairs of ranks talk by it; so making groups costs nothing, and exchanges of all of
  /// them come in the order in which a rank begins them. Nothing changes where `device` is the
  /// host. seconds: how long a rank waits for others, or for its device while that waits for
  /// others, before it throws Error(watchdog); so it does here where NCCL cannot connect all ranks
  /// to each other. An error of NCCL is Error(internal), found by the next exchange or wait for the
  /// device. Throws Error(unavailable), on all ranks, where `transport` is nccl and cannot be
  /// had. Collective.
  Group use_device(Device device, Transport transport, double seconds) const;
  /// Of tensors on devices; automatic where use_device() was not called.
  Transport transport() const;
  /// Whether exchanges of tensors on a device can be captured in a graph of the device: nothing in
  /// them waits for the host.
  bool capturable() const;

  bool member() const { return comm_ != nullptr; }
  int rank() const { return rank_; }  ///< −1 where this rank is not a member
  int size() const { return size_; }  ///< 0 where this rank is not a member
  /// The communicator, for libraries that take one. Call post_pending_messages() before a library
  /// waits for other ranks with it. Error(internal) where this rank is not a member.
  MPI_Comm handle() const;

  void barrier() const;
  /// Everybody's largest, smallest, sum.
  std::int64_t max(std::int64_t value) const;
  double max(double value) const;
  double min(double value) const;
  double sum(double value) const;
  /// Every element summed over the ranks, in place, on every rank; all give equally many.
  void sum(std::span<std::int64_t> values) const;
  /// `text` of the root, on every rank.
  std::string broadcast(std::string text, int root) const;
  /// One block a rank, in rank order, on every rank; blocks may differ in size.
  std::vector<std::string> all_gather(const std::string& block) const;
  /// Like all_gather, but only the root gets the blocks (the others an empty vector).
  std::vector<std::string> gather(const std::string& block, int root) const;
  /// Sends and receives point to point; both sides name the same byte counts, in the same order for
  /// a pair of ranks. Tensors of one call are all on the host, or all on the device that
  /// use_device() was given, on both sides. Several transfers may be under way at once where all
  /// ranks begin them in the same order.
  Transfer begin_exchange(std::span<const Message> sends, std::span<const Message> receives) const;
  /// The same, finished. Ranks with no message return at once.
  void exchange(std::span<const Message> sends, std::span<const Message> receives) const;
  /// Returns when this rank and each of `peers`, which name this rank, have called it. Precedes
  /// exchanges for which some ranks may come much later: the host waits for them without a limit,
  /// where the device would wait for device.timeout at most.
  void meet(std::span<const int> peers) const;

 private:
  explicit Group(MPI_Comm comm, bool owned, const Group* parent = nullptr);
  std::shared_ptr<void> comm_;  ///< holds an MPI_Comm
  std::shared_ptr<DeviceTransport> device_transport_;
  /// Of each rank: its rank in the group that the transport was made for.
  std::vector<int> transport_ranks_;
  int rank_ = -1;
  int size_ = 0;
};

}  // namespace reelmesh::comm
