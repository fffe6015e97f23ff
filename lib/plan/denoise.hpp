#pragma once
// The layout of a clip over the ranks that denoise it: the one place that searches for it.
#include "plan/roles.hpp"
#include "plan/workload.hpp"

namespace reelmesh {

/// What one rank computes and sends in one step for one clip.
struct StepCost {
  double flops = 0;             ///< of matrix products and attention
  std::int64_t sent_bytes = 0;  ///< to other ranks
};

/// An exchange that every step makes several times.
struct StepExchange {
  std::string name;                ///< "frames -> positions"
  std::int64_t times = 0;          ///< in a step
  std::int64_t largest_bytes = 0;  ///< sent by the rank that sends most, each time
};

struct ChosenLayout {
  DenoiseLayout layout;
  std::string why;                      ///< one line; empty where there was nothing to choose
  std::vector<StepExchange> exchanges;  ///< with space_time attention on several ranks
};

/// The layout of a clip over `ranks` ranks, a multiple of the sizes asked for.
///
/// Joint attention: with two branches of guidance and an even number of ranks, cfg is 2 unless
/// asked otherwise, since it exchanges once a step where the other axes exchange in every layer. Of
/// the meshes ring × Ulysses that remain, those are preferred whose busiest rank has at most 1.1
/// times the work of the least busy one; of these the one with the lowest cost is taken: operations
/// of the busiest rank, and bytes of the rank that sends most at flops_per_byte. A clip of one
/// branch has no use for cfg: its ranks go to the ring. With unequal weights tokens are cut in
/// proportion to them and the time of a rank is compared instead of its work; heads are not, so a
/// ring is more even then.
///
/// Space-time attention: frames are cut while there are as many frames as ranks, otherwise frames
/// and rows, by the grid with the smallest makespan; Shard can ask for frames, rows or a grid.
ChosenLayout choose_layout(const DenoiseWorkload& workload, const MeshRequest& request, Shard shard,
                           int ranks, const RankWeights& weights = {});

/// In constant time. rank: of the group.
StepCost step_cost(const DenoiseWorkload& workload, const DenoiseLayout& layout, int rank);

/// What a sent byte costs in operations. Between 20 (cores that share memory) and 10000 (GPUs on a
/// network).
constexpr double flops_per_byte = 1000;

}  // namespace reelmesh
