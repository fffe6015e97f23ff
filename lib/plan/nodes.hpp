#pragma once
// Which launched rank takes which rank of the plan, so that ranks that exchange most share a node.
#include "base/launched_rank.hpp"
#include "plan/roles.hpp"

namespace reelmesh {

/// Ranges of ranks of the plan that should each share a node. A group is one range if the largest
/// node has room for it. Otherwise it is cut into ranges of the first size in `parts` (in
/// descending order) that the largest node has room for, or of the last size. node_of: as below.
std::vector<RankRange> ranges_to_colocate(const std::vector<RankRange>& groups,
                                          const std::vector<int>& parts,
                                          const std::vector<int>& node_of);

/// For each rank of the plan the launched rank that takes it. node_of[rank]: equal numbers
/// for ranks of one node. Each range in `close` is placed on one node if there is one with room for
/// it; the remaining ranks are filled node by node. The launched order is kept if all ranges are
/// within nodes already.
std::vector<LaunchedRank> order_by_node(const std::vector<int>& node_of,
                                        const std::vector<RankRange>& close);

/// As launched: for each of so many ranks the launched rank with its number.
std::vector<LaunchedRank> launched_in_order(std::size_t ranks);

}  // namespace reelmesh
