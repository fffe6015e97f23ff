#pragma once
// What a plan takes from the machine.
#include <cstdint>
#include <vector>

#include "layout/layout.hpp"

namespace reelmesh {

/// What a rank's process needs before it loads anything, measured: program, libraries and MPI.
constexpr std::int64_t program_bytes = std::int64_t{56} << 20;
/// The same of a GPU's memory: the driver's context, code of libraries, their workspaces. Taken
/// from what is usual, not measured.
constexpr std::int64_t program_bytes_on_gpu = std::int64_t{1} << 30;

/// One number for each rank. Ranks are counted as the launcher started them, or by their places in
/// the plan (Plan::launched). No numbers: none are known.
template <class T>
struct PerRank {
  std::vector<T> values;
  bool by_place = true;

  /// By place, where the rank at place i was launched as launched[i].
  std::vector<T> in_plan_order(const std::vector<int>& launched) const {
    if (by_place || values.empty()) return values;
    std::vector<T> placed;
    for (const int rank : launched) placed.push_back(values.at(static_cast<std::size_t>(rank)));
    return placed;
  }
};

struct PlanMachine {
  int ranks = 1;
  int threads = 1;                       ///< of the rank that has most
  std::int64_t program = program_bytes;  ///< of each rank
  bool embeddings_on_host = true;        ///< those that wait take the memory that is planned
  std::vector<int> node_of;              ///< of each launched rank; empty: one node
  PerRank<double> rank_weights;          ///< relative speeds; none: equal
  PerRank<std::int64_t> memory_limits;   ///< bytes; none: no limit
};

}  // namespace reelmesh
