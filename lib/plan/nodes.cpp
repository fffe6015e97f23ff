#include "plan/nodes.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <set>

namespace reelmesh {

std::vector<RankRange> ranges_to_colocate(const std::vector<RankRange>& groups,
                                          const std::vector<int>& parts,
                                          const std::vector<int>& node_of) {
  std::map<int, int> room;
  int max_room = 0;
  for (const int node : node_of) max_room = std::max(max_room, ++room[node]);
  std::vector<RankRange> close;
  for (const RankRange& group : groups) {
    int size = group.count;
    for (const int part : parts) {  // from large to small
      if (size > max_room && part < size) size = part;
    }
    for (int first = 0; first < group.count; first += size) {
      close.push_back({group.first + first, std::min(size, group.count - first)});
    }
  }
  return close;
}

std::vector<LaunchedRank> launched_in_order(std::size_t ranks) {
  std::vector<LaunchedRank> order(ranks);
  for (std::size_t i = 0; i < ranks; ++i) order[i] = LaunchedRank{static_cast<int>(i)};
  return order;
}

std::vector<LaunchedRank> order_by_node(const std::vector<int>& node_of,
                                        const std::vector<RankRange>& close) {
  std::vector<LaunchedRank> order = launched_in_order(node_of.size());
  const auto within_a_node = [&](const RankRange& range) {
    const auto first = node_of.begin() + range.first;
    return std::all_of(first, first + range.count, [&](int node) { return node == *first; });
  };
  if (!close.empty() && std::all_of(close.begin(), close.end(), within_a_node)) return order;

  // Nodes in the order of their first ranks; free[node]: its launched ranks that are still free.
  std::map<int, std::size_t> numbers;
  std::vector<std::deque<LaunchedRank>> free;
  for (std::size_t rank = 0; rank < node_of.size(); ++rank) {
    const auto [node, is_new] = numbers.try_emplace(node_of[rank], free.size());
    if (is_new) free.emplace_back();
    free[node->second].push_back(LaunchedRank{static_cast<int>(rank)});
  }
  constexpr LaunchedRank none{-1};
  std::ranges::fill(order, none);
  const auto take = [&](int at, std::size_t node) {
    order.at(static_cast<std::size_t>(at)) = free[node].front();
    free[node].pop_front();
  };
  // Best fit: the node with the fewest free ranks that are enough, to keep larger nodes for others.
  std::set<std::pair<std::size_t, std::size_t>> rooms;  // free ranks, node
  for (std::size_t node = 0; node < free.size(); ++node) rooms.emplace(free[node].size(), node);
  for (const RankRange& range : close) {
    const auto best = rooms.lower_bound({static_cast<std::size_t>(range.count), 0});
    if (best == rooms.end()) continue;
    const std::size_t node = best->second;
    rooms.erase(best);
    for (int i = 0; i < range.count; ++i) take(range.first + i, node);
    rooms.emplace(free[node].size(), node);
  }
  std::size_t node = 0;
  for (std::size_t at = 0; at < order.size(); ++at) {
    if (order[at] != none) continue;
    while (free[node].empty()) ++node;
    take(static_cast<int>(at), node);
  }
  return order;
}

}  // namespace reelmesh
