#include "plan/nodes.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>

namespace reelmesh {

std::vector<RankRange> close_ranks(const std::vector<RankRange>& groups,
                                   const std::vector<int>& parts, const std::vector<int>& node_of) {
  std::map<int, int> room;
  int most = 0;
  for (const int node : node_of) most = std::max(most, ++room[node]);
  std::vector<RankRange> close;
  for (const RankRange& group : groups) {
    int size = group.count;
    for (const int part : parts) {  // from large to small
      if (size > most && part < size) size = part;
    }
    for (int first = 0; first < group.count; first += size) {
      close.push_back({group.first + first, std::min(size, group.count - first)});
    }
  }
  return close;
}

std::vector<int> order_by_node(const std::vector<int>& node_of,
                               const std::vector<RankRange>& close) {
  std::vector<int> order(node_of.size());
  std::iota(order.begin(), order.end(), 0);
  const auto within_a_node = [&](const RankRange& range) {
    const auto first = node_of.begin() + range.first;
    return std::all_of(first, first + range.count, [&](int node) { return node == *first; });
  };
  if (!close.empty() && std::all_of(close.begin(), close.end(), within_a_node)) return order;

  std::vector<int> nodes;               // as their first ranks come
  std::map<int, std::deque<int>> free;  // node → ranks without a place
  for (std::size_t rank = 0; rank < node_of.size(); ++rank) {
    std::deque<int>& ranks = free[node_of[rank]];
    if (ranks.empty()) nodes.push_back(node_of[rank]);
    ranks.push_back(static_cast<int>(rank));
  }
  std::fill(order.begin(), order.end(), -1);
  const auto place = [&](int at, int node) {
    order.at(static_cast<std::size_t>(at)) = free[node].front();
    free[node].pop_front();
  };
  for (const RankRange& range : close) {
    // The node that is filled best, so that larger rooms remain for others.
    const auto room = [&](int node) { return static_cast<int>(free[node].size()); };
    auto best = nodes.end();
    for (auto node = nodes.begin(); node != nodes.end(); ++node) {
      if (room(*node) >= range.count && (best == nodes.end() || room(*node) < room(*best))) {
        best = node;
      }
    }
    for (int i = 0; best != nodes.end() && i < range.count; ++i) place(range.first + i, *best);
  }
  auto node = nodes.begin();
  for (std::size_t at = 0; at < order.size(); ++at) {
    if (order[at] >= 0) continue;
    while (free[*node].empty()) ++node;
    place(static_cast<int>(at), *node);
  }
  return order;
}

}  // namespace reelmesh
