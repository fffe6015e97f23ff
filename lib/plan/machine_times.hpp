#pragma once
// What a machine file says: how long a rank's operations, messages and files take.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "plan/known_operations.hpp"
#include "tensor/time_model.hpp"

namespace reelmesh {

/// Of messages between two ranks.
struct Link {
  double latency = 0;      ///< seconds of a message without bytes
  double bytes_per_s = 0;  ///< of a rank that sends and receives at the same time
  double share = 0;        ///< of the time in which the ranks cannot compute, 0 to 1
};

/// The link, or if its rates are not known one over which nothing ever arrives; predict() says why.
inline const Link& or_never(const std::optional<Link>& link) {
  static constexpr Link none{never, 1, 0};
  return link ? *link : none;
}

/// Of tensors of one type.
struct DTypeTimes {
  /// By kind (Ledger::note_operation).
  std::map<std::string, KnownOperations, std::less<>> operations;
  /// Bytes/s of weights that are read and packed, by one rank: of linear layers, of convolutions.
  double load = 0, load_convolutions = 0;
};

/// A machine, as measured or by published figures.
struct MachineTimes {
  std::string file;  ///< for messages: where this is from
  std::string name, host, processor, date, source;
  bool measured = false;
  bool on_gpu = false;
  int cores = 1;            ///< of a node
  std::int64_t memory = 0;  ///< bytes that a rank may use on its device; 0: not known
  int multiprocessors = 0;  ///< of a rank's GPU; 0: not known
  int threads = 1;          ///< of a rank, while it was measured
  int together = 1;         ///< ranks of a node that computed at the same time for `shared`
  double crowded = 1;       ///< what more threads than cores lose beside their equal shares
  double start = 0;         ///< seconds of a job before it loads anything and after its last clip
  double write = 0;         ///< bytes/s of a video that is written
  double disk = 0;          ///< bytes/s of weights that a node reads from the disk
  double touch = 0;         ///< bytes/s of new memory on the device that is used for the first time
  /// Between ranks of a node and of two nodes; from the host's memory, where weights may be.
  std::optional<Link> node, network, host_memory;
  std::map<DType, DTypeTimes> alone;  ///< of a rank that computes while the others of its node wait
  std::map<DType, DTypeTimes> shared;  ///< while `together` ranks compute; as `alone` if missing

  /// Seconds of an operation of a rank, by the known ones of its kind (known_operations.hpp); busy:
  /// ranks of the node that compute at the same time, with `threads` threads each. Error(data) if
  /// none is known, naming file, type and kind.
  double operation(std::string_view kind, DType dtype, double flops, double bytes, int busy,
                   int threads) const;
  /// Bytes/s that a rank loads: of the autoencoder, or of the other parts.
  double load(DType dtype, int busy, bool autoencoder) const;
  /// How many times as long as alone work takes on a node that has too few cores for all threads.
  double crowding(int busy, int threads) const;

 private:
  const DTypeTimes& of(DType dtype, int busy) const;
};

/// Ranks whose times a dry run asks for.
struct TimedRanks {
  int busy = 1;     ///< ranks of a node that compute at the same time
  int threads = 1;  ///< of a rank
  int of_node = 1;  ///< consecutive ranks of a group that share a node
};

/// The time model of these ranks. operation() throws as MachineTimes::operation; exchange() is
/// `never` or more if the file lacks the link.
std::shared_ptr<const TimeModel> time_model(std::shared_ptr<const MachineTimes> machine,
                                            const TimedRanks& ranks);

}  // namespace reelmesh
