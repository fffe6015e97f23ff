#pragma once
// What a plan needs to know of the machine.
#include <cstdint>
#include <vector>

#include "base/launched_rank.hpp"
#include "layout/layout.hpp"
#include "plan/machine_times.hpp"

namespace reelmesh {

/// Memory of a rank's process before it loads anything, measured: program, libraries and MPI. Less
/// with oneDNN 2 and Open MPI 4.1 (Debian 12), 46 MiB; more with oneDNN 3 and Open MPI 5, 62 MiB.
constexpr std::int64_t program_bytes = std::int64_t{56} << 20;
/// The same on a GPU: the driver's context, code of libraries, their workspaces. A typical value,
/// not measured.
constexpr std::int64_t program_bytes_on_gpu = std::int64_t{1} << 30;
/// What a rank with a GPU takes of the host before it loads anything: the same, and pinned memory.
/// A typical value, not measured.
constexpr std::int64_t host_program_bytes_of_gpu = std::int64_t{1} << 28;
/// What a training adds to program_bytes, measured: libraries that decode videos, and small blocks.
constexpr std::int64_t training_program_bytes = std::int64_t{32} << 20;

/// One value per rank; empty if unknown. Indexed by rank in plan order or as launched;
/// Plan::launched maps the former to the latter.
template <class T>
struct PerRank {
  std::vector<T> values;
  bool by_plan_rank = true;

  /// The values by rank in plan order. launched: as Plan::launched.
  std::vector<T> in_plan_order(const std::vector<LaunchedRank>& launched) const {
    if (by_plan_rank || values.empty()) return values;
    std::vector<T> ordered;
    for (const LaunchedRank rank : launched) {
      ordered.push_back(values.at(static_cast<std::size_t>(rank)));
    }
    return ordered;
  }
};

struct PlanMachine {
  int ranks = 1;
  int threads = 1;                       ///< maximum over ranks
  std::int64_t program = program_bytes;  ///< per rank, before anything is loaded
  /// Of ranks with GPUs, whose memory is planned: what each takes of the host before anything is
  /// loaded. 0: ranks compute on the host.
  std::int64_t host_program = 0;
  bool count_waiting_embeddings = true;  ///< whether waiting embeddings count as planned memory
  bool connects_devices = false;         ///< whether NCCL has connections between the ranks
  std::vector<int> node_of;              ///< node of each launched rank; empty: one node
  PerRank<double> rank_weights;          ///< relative speeds; none: equal
  PerRank<std::int64_t> memory_limits;   ///< bytes; none: no limit
  std::shared_ptr<const MachineTimes> times;  ///< null: not known, and no times are predicted
  int multiprocessors = 0;                    ///< of each GPU; 0: not known
  /// Whether the limits are what is free, not what the user asked for.
  bool limits_are_free_memory = false;
};

}  // namespace reelmesh
