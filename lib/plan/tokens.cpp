#include "plan/tokens.hpp"

#include <algorithm>
#include <queue>

#include "plan/bisect.hpp"

namespace reelmesh {
namespace {

double rank_weight(const RankWeights& weights, int rank) {
  return weights.empty() ? 1.0 : weights.at(static_cast<std::size_t>(rank));
}

struct Evenness {
  double makespan = 0;
  std::int64_t smallest = 0;  // box
  bool better_than(const Evenness& other) const {
    return makespan != other.makespan ? makespan < other.makespan : smallest > other.smallest;
  }
};

Evenness measure_evenness(const Layout& layout, const RankWeights& weights) {
  Evenness found{makespan(layout, weights), numel(layout.global())};
  for (int r = 0; r < layout.ranks(); ++r) {
    found.smallest = std::min(found.smallest, layout.box(r).numel());
  }
  return found;
}

// The same for a grid of equally fast ranks, computed without making the boxes.
Evenness measure_evenness(const Shape& grid, const std::vector<int>& parts) {
  Evenness found{1, 1};
  for (std::size_t axis = 0; axis < grid.size(); ++axis) {
    found.makespan *= static_cast<double>((grid[axis] + parts[axis] - 1) / parts[axis]);
    found.smallest *= grid[axis] / parts[axis];
  }
  return found;
}

std::vector<int> divisors(int n) {
  std::vector<int> all;
  for (int i = 1; i <= n; ++i) {
    if (n % i == 0) all.push_back(i);
  }
  return all;
}

}  // namespace

double makespan(const Layout& layout, const RankWeights& weights,
                const std::function<double(const Box&)>& cost) {
  double longest = 0;
  for (int r = 0; r < layout.ranks(); ++r) {
    longest = std::max(longest, cost(layout.box(r)) / rank_weight(weights, r));
  }
  return longest;
}

double makespan(const Layout& layout, const RankWeights& weights) {
  return makespan(layout, weights, [](const Box& box) { return static_cast<double>(box.numel()); });
}

Layout token_layout(Shard shard, const Shape& grid, int ranks, const RankWeights& weights) {
  const std::vector<int> rows{1, ranks, 1}, frames{ranks, 1, 1};
  if (shard == Shard::height) return Layout::grid(grid, rows, weights);
  if (shard == Shard::frames) return Layout::grid(grid, frames, weights);
  const bool equal_weights =
      std::ranges::adjacent_find(weights, std::not_equal_to<>()) == weights.end();
  const auto of_parts = [&](const std::vector<int>& parts) {
    return equal_weights ? measure_evenness(grid, parts)
                         : measure_evenness(Layout::grid(grid, parts, weights), weights);
  };
  // Candidates in order of preference: rows only, then grids with few parts in time.
  std::vector<int> best = rows;
  Evenness evenness = of_parts(rows);
  bool found = shard == Shard::automatic;
  for (const int time_parts : divisors(ranks)) {
    for (const int column_parts : divisors(ranks / time_parts)) {
      const int row_parts = ranks / time_parts / column_parts;
      const std::vector<int> parts{time_parts, row_parts, column_parts};
      const bool is_grid = std::ranges::count_if(parts, [](int n) { return n > 1; }) >= 2;
      if (shard == Shard::grid && !is_grid) continue;
      const Evenness candidate = of_parts(parts);
      if (found && !candidate.better_than(evenness)) continue;
      best = parts;
      evenness = candidate;
      found = true;
    }
  }
  // With a prime number of ranks there is no grid, and rows are cut.
  Layout layout = Layout::grid(grid, best, equal_weights ? RankWeights{} : weights);
  if (shard != Shard::automatic) return layout;
  std::vector<Layout> others{bisected(grid, ranks)};
  if (!equal_weights) others.push_back(bisected_by_weight(grid, weights));
  for (const Layout& other : others) {
    const RankWeights of_ranks = equal_weights ? RankWeights{} : weights;
    const Evenness candidate = measure_evenness(other, of_ranks);
    if (!candidate.better_than(evenness)) continue;
    layout = other;
    evenness = candidate;
  }
  return layout;
}

Layout text_layout(std::int64_t tokens, const Layout& video, const RankWeights& weights) {
  std::vector<std::int64_t> share(static_cast<std::size_t>(video.ranks()), 0);
  using Finish = std::pair<double, int>;  // (time of a rank with one more token, rank)
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> next;
  const auto finish = [&](int rank) {
    const std::int64_t held = video.box(rank).numel() + share[static_cast<std::size_t>(rank)];
    return Finish{static_cast<double>(held + 1) / rank_weight(weights, rank), rank};
  };
  for (int rank = 0; rank < video.ranks(); ++rank) next.push(finish(rank));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const int first = next.top().second;
    next.pop();
    ++share[static_cast<std::size_t>(first)];
    next.push(finish(first));
  }
  std::vector<Box> boxes;
  std::int64_t first = 0;
  for (const std::int64_t count : share) {
    boxes.push_back({{first}, {count}});
    first += count;
  }
  return {{tokens}, std::move(boxes)};
}

}  // namespace reelmesh
