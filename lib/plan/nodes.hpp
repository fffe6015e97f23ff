#pragma once
// Which rank of the launcher takes which place of the plan, by the nodes that they run on.
#include "plan/roles.hpp"

namespace reelmesh {

/// Which consecutive ranks of `groups` should share a node: those of a whole group if a node has
/// room for it, else those of each of its equal parts, of the first size in `parts`, from large to
/// small, that a node has room for, or of the last. node_of: as below.
std::vector<RankRange> close_ranks(const std::vector<RankRange>& groups,
                                   const std::vector<int>& parts, const std::vector<int>& node_of);

/// The order in which ranks take their places in the plan: order[place] = rank, where node_of[rank]
/// tells ranks of one node by equal numbers. Each of the ranges `close`, ranks that talk most,
/// stands within one node if there is one with room for it; the other places go to the other ranks,
/// node by node. Where all of `close` stand so as launched, that order stays.
std::vector<int> order_by_node(const std::vector<int>& node_of,
                               const std::vector<RankRange>& close);

}  // namespace reelmesh
