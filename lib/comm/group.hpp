#pragma once
// MPI is called in lib/comm only (exception: handle(), for libraries), and only by the thread that
// called MPI_Init_thread.
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/messages.hpp"

namespace reelmesh::comm {

class TraceChannel;

constexpr int max_tag = 15;  ///< of Group::begin_exchange

/// MPI_Init_thread … MPI_Finalize. Make one in main, before any group.
class Environment {
 public:
  Environment();
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
};

/// For a process that ends with an error before it has called MPI: under Open MPI's mpirun, waits
/// in MPI_Init for all processes. mpirun 4.1.4 waits for ever if a process ends with a status other
/// than 0 while others are still to be started. Without mpirun, and after MPI_Init, does nothing.
void join_launch();

/// Ends all ranks of the job at once with this exit status (MPI_Abort).
[[noreturn]] void abort_all(Status status);

/// An ordered set of ranks with an MPI communicator. A default-constructed Group has no ranks.
/// Copies share the communicator, which is freed with the last of them. An error of MPI is thrown
/// as Error(internal) that names the call.
class Group {
 public:
  Group() = default;
  static Group world();
  /// Rank `rank` of `size` ranks that are not there, for a dry run (tensor/ledger.hpp): messages
  /// are counted and not sent, what others would send has this rank's values, and nobody waits.
  static Group pretended(int rank, int size);
  /// The ranks of this group that share memory with this one (same host). Collective.
  Group on_this_host() const;
  /// Ranks [first, first + count) of this group; other ranks get an empty Group. Collective.
  Group range(int first, int count) const;
  /// The ranks of this group that pass the same color, in the same order; a rank with a negative
  /// color gets an empty Group. Collective (MPI_Comm_split).
  Group split(int color) const;
  /// The same if each rank knows the colors of all ranks of this group.
  Group split(const std::vector<int>& colors) const;

  /// The same ranks, with messages that are independent of this group's: they match among
  /// themselves, and those of device tensors have a stream of their own, with NCCL also a
  /// communicator of its own (from 2.26 on; before, they share this group's). So they may be begun
  /// long before they are needed, by all ranks in the same order. The first call makes it, for all
  /// copies of this group. Collective; errors as connected().
  Group independent() const;

  /// The same ranks in another order: order[i] = rank of this group. Collective.
  Group in_order(const std::vector<int>& order) const;

  /// A group of the same ranks, of which all groups made from it can be connected(). device: this
  /// rank's; nothing changes if it is the host on all ranks. transport: automatic chooses NCCL if
  /// every rank has its own GPU and NCCL can be loaded, otherwise MPI. seconds: how long a rank
  /// waits, for other ranks or for a device that waits for them, before it throws Error(watchdog).
  /// Throws Error(unavailable) on all ranks if only some have a GPU, or if `transport` is nccl and
  /// NCCL cannot be used. Collective.
  Group use_device(Device device, Transport transport, double seconds) const;
  /// The same ranks, which can exchange device tensors; so can all groups made from it. They share
  /// one NCCL communicator, since only point-to-point calls use it, and a rank's exchanges on all
  /// connected groups are executed in the order in which it begins them. The communicator is made
  /// by the first call for these ranks and stays until the end; two ranks are connected by their
  /// first messages. Error(watchdog) if ranks do not reach each other within the time-out, here or
  /// at their first exchange. An error of NCCL is thrown as Error(internal) by the next exchange or
  /// wait for the device. Without devices, and for one rank, this group. Collective.
  Group connected() const;
  /// The transport of device tensors; automatic if use_device() was not called.
  Transport transport() const;
  /// Whether exchanges of device tensors can be captured in a CUDA graph: true if the host takes no
  /// part in them.
  bool capturable() const;

  bool member() const { return rank_ >= 0; }
  int rank() const { return rank_; }  ///< −1 if this rank is not a member
  int size() const { return size_; }  ///< 0 if this rank is not a member
  /// The communicator, for libraries that take one. Call post_pending_messages() before a library
  /// waits for other ranks with it. Error(internal) if this rank is not a member, or the ranks are
  /// pretended.
  MPI_Comm handle() const;
  /// The communicator in traces.
  TraceChannel& channel() const { return *channel_; }

  void barrier() const;
  /// A barrier in which a rank sleeps while it waits, and so leaves its core to the others; for
  /// measurements. It may return some milliseconds late.
  void sleeping_barrier() const;
  /// Reductions over all ranks, with the result on every rank (MPI_Allreduce).
  std::int64_t max(std::int64_t value) const;
  double max(double value) const;
  double min(double value) const;
  double sum(double value) const;
  /// The sum or maximum of each element over the ranks, in place, on every rank; same number of
  /// elements on all.
  void sum(std::span<std::int64_t> values) const;
  void max(std::span<std::int64_t> values) const;
  /// The root's `text`, on every rank.
  std::string broadcast(std::string text, int root) const;
  /// One block per rank, in rank order, on every rank; blocks may differ in size.
  std::vector<std::string> all_gather(const std::string& block) const;
  /// Like all_gather, but only the root gets the blocks (the others an empty vector).
  std::vector<std::string> gather(const std::string& block, int root) const;
  /// Begins point-to-point sends and receives. For each pair of ranks, sends and receives match in
  /// order and byte counts. The tensors of one call are all on the host, or all on the device that
  /// was passed to use_device(), on both sides. Several exchanges may be pending at a time if all
  /// ranks begin them in the same order. tag: 0 to max_tag; messages of host tensors with different
  /// tags are independent of each other.
  PendingMessages begin_exchange(std::span<const Message> sends, std::span<const Message> receives,
                                 int tag = 0) const;
  /// The same, completed on return. Ranks without messages return at once.
  void exchange(std::span<const Message> sends, std::span<const Message> receives) const;
  /// A barrier between this rank and each of `peers`, which must list this rank too. Call it before
  /// an exchange that some ranks may reach much later than others: the host waits without a limit,
  /// whereas the device would wait for at most device.timeout.
  void barrier_with(std::span<const int> peers) const;

 private:
  explicit Group(MPI_Comm comm, bool owned, const Group* parent = nullptr);
  /// Of device tensors.
  void use(std::shared_ptr<DeviceTransport> transport);
  std::shared_ptr<void> comm_;  ///< holds an MPI_Comm; null for pretended ranks
  std::shared_ptr<TraceChannel> channel_;
  std::shared_ptr<DeviceTransport> device_transport_;
  /// For each rank of this group its rank in the group that was connected, or pretended; there
  /// empty if it is the same.
  std::vector<int> transport_ranks_;
  std::shared_ptr<std::optional<Group>> independent_;  ///< shared by copies; null if pretended
  int rank_ = -1;
  int size_ = 0;
  bool pretended_ = false;
};

}  // namespace reelmesh::comm
