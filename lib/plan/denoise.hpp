#pragma once
// The search for the layout of a clip over the ranks that denoise it.
#include <algorithm>

#include "plan/roles.hpp"
#include "plan/workload.hpp"

namespace reelmesh {

/// Assumed cost of a sent byte in FLOPs; machines range from 20 (cores that share memory) to 10000
/// (GPUs on a network).
constexpr double flops_per_byte = 1000;

/// What one rank computes and sends per step for one clip.
struct StepCost {
  double flops = 0;             ///< of matrix products and attention
  std::int64_t sent_bytes = 0;  ///< to other ranks

  /// In FLOPs, on a rank of this relative speed, with weights that arrive while it computes.
  double total(double speed, std::int64_t fetched_bytes) const {
    return std::max(flops / speed + flops_per_byte * static_cast<double>(sent_bytes),
                    flops_per_byte * static_cast<double>(fetched_bytes));
  }
};

/// An exchange that is repeated several times in every step.
struct StepExchange {
  std::string name;                ///< "frames -> positions"
  std::int64_t times = 0;          ///< per step
  std::int64_t largest_bytes = 0;  ///< maximum over ranks of the bytes sent each time
};

struct ChosenLayout {
  DenoiseLayout layout;
  std::string why;                      ///< why this mesh, one line; empty for space_time attention
  std::vector<StepExchange> exchanges;  ///< only for space_time attention on several ranks
};

/// The layout of a clip over `ranks` ranks, which must be a multiple of request.product().
/// weights: relative speeds of the ranks.
///
/// Joint attention: with two branches of guidance and an even number of ranks, cfg is 2 unless
/// asked otherwise, since it exchanges once per step and the other axes in every layer. Of
/// the meshes ring × Ulysses that remain, those are preferred whose busiest rank has at most 1.1
/// times the work of the least busy one; of these the one with the lowest cost is taken: FLOPs of
/// the busiest rank plus flops_per_byte × bytes of the rank that sends most. With one branch cfg is
/// 1, and a requested ring takes the ranks of a requested cfg. With unequal weights tokens are cut
/// in proportion to them, and work / weight is compared instead of work. Heads are still divided
/// evenly, so a ring then balances the load better than Ulysses.
///
/// Space-time attention: frames are cut while there are as many frames as ranks, otherwise frames
/// and rows, by the grid with the smallest makespan; Shard can ask for frames, rows or a grid.
ChosenLayout choose_layout(const DenoiseWorkload& workload, const MeshRequest& request, Shard shard,
                           int ranks, const RankWeights& weights = {});

/// The cost of a step on one rank of the group. Takes constant time.
StepCost step_cost(const DenoiseWorkload& workload, const DenoiseLayout& layout, int rank);

}  // namespace reelmesh
