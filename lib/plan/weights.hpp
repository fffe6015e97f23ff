#pragma once
// Where the weights of the transformer are, and what that costs.
#include "layout/residence.hpp"
#include "plan/workload.hpp"

namespace reelmesh {

/// Where the weights of the transformer's linear layers are. The same on all replicas.
struct WeightPlan {
  Residence residence = Residence::replicated;
  /// host: the fraction of the weights that stays on each rank nevertheless, 0 to 1.
  double resident = 0;
  /// sharded: for each replica the shares of its ranks; empty: equal shares.
  std::vector<RankWeights> shares;
  std::int64_t all = 0;      ///< bytes of one copy
  std::int64_t kept = 0;     ///< bytes of these that stay on a rank, maximum over ranks
  std::int64_t window = 0;   ///< working memory for those that do not stay
  std::int64_t fetched = 0;  ///< bytes that a rank fetches in each step, maximum over ranks

  /// The part that each rank of a replica of so many ranks keeps, 0 to 1.
  std::vector<double> kept_parts(std::size_t replica, int ranks) const;
};

/// Memory of a stage in which the fraction `kept` of the streamed weights stays where `residence`
/// keeps them; with a window of this size if they are not all there as they are used.
StageMemory without_streamed(StageMemory memory, const StreamedWeights& streamed,
                             Residence residence, double kept, std::int64_t window);

/// "sharded", "host", "replicated".
const char* name_of(Residence residence);
}  // namespace reelmesh
