#include "plan/bisect.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "base/number.hpp"

namespace reelmesh {
namespace {

constexpr int searched_ranks = 16;  // up to this number of ranks all cuts are tried

using Extent = std::array<std::int64_t, 3>;
std::int64_t tokens(const Extent& e) { return e[0] * e[1] * e[2]; }

struct Cut {
  std::size_t axis = 0;
  std::int64_t at = 0;  // extent of the first part; 0: no cut
  int ranks = 0;        // of the first part
};

std::pair<Extent, Extent> parts(const Extent& extent, const Cut& cut) {
  Extent a = extent, b = extent;
  a[cut.axis] = cut.at;
  b[cut.axis] -= cut.at;
  return {a, b};
}

struct Best {
  std::int64_t largest = 0, smallest = 0;
  Cut cut;
  bool better_than(const Best& other) const {
    return largest != other.largest ? largest < other.largest : smallest > other.smallest;
  }
};

// Memoised, because different orders of cuts lead to the same boxes.
class Search {
 public:
  Best best(const Extent& extent, int ranks) {
    const std::array<std::int64_t, 4> key{extent[0], extent[1], extent[2], ranks};
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    // Without a cut the first rank gets the whole box and the others nothing.
    Best found{tokens(extent), ranks == 1 ? tokens(extent) : 0, {}};
    const int fewest = ranks > searched_ranks ? ranks / 2 : 1;
    for (int first = ranks / 2; first >= fewest; --first) {
      // Of equally good cuts, rows are preferred over columns, and columns over frames.
      for (const std::size_t axis : {1, 2, 0}) {
        const std::int64_t down = extent[axis] * first / ranks;
        for (const std::int64_t at : {down, down + 1}) {
          if (at > 0 && at < extent[axis]) consider({axis, at, first}, extent, ranks, found);
        }
      }
    }
    known_.emplace(key, found);
    return found;
  }

 private:
  void consider(const Cut& cut, const Extent& extent, int ranks, Best& found) {
    const auto [a, b] = parts(extent, cut);
    const int ranks_b = ranks - cut.ranks;
    // A bound on what this cut can reach: as if both parts could be divided evenly.
    const auto up = [](std::int64_t x, std::int64_t n) { return (x + n - 1) / n; };
    Best candidate{std::max(up(tokens(a), cut.ranks), up(tokens(b), ranks_b)),
                   std::min(tokens(a) / cut.ranks, tokens(b) / ranks_b), cut};
    if (!candidate.better_than(found)) return;
    if (ranks <= searched_ranks) {
      const Best x = best(a, cut.ranks), y = best(b, ranks_b);
      candidate.largest = std::max(x.largest, y.largest);
      candidate.smallest = std::min(x.smallest, y.smallest);
    }
    if (candidate.better_than(found)) found = candidate;
  }

  std::map<std::array<std::int64_t, 4>, Best> known_;
};

// Appends the boxes of ranks [first, first + ranks). choose_cut(extent, first, ranks) → a Cut.
template <class F>
void divide(const Box& box, int first, int ranks, F&& choose_cut, std::vector<Box>& boxes) {
  const Cut cut = choose_cut(Extent{box.extent[0], box.extent[1], box.extent[2]}, first, ranks);
  if (cut.at == 0) {
    boxes.push_back(box);
    const Shape none(box.extent.size(), 0);
    boxes.resize(boxes.size() + static_cast<std::size_t>(ranks - 1), {none, none});
    return;
  }
  Box a = box, b = box;
  a.extent[cut.axis] = cut.at;
  b.extent[cut.axis] -= cut.at;
  b.offset[cut.axis] += cut.at;
  divide(a, first, cut.ranks, choose_cut, boxes);
  divide(b, first + cut.ranks, ranks - cut.ranks, choose_cut, boxes);
}

}  // namespace

Layout bisected(const Shape& grid, int ranks) {
  expect(grid.size() == 3 && ranks > 0, "{} over {} ranks", grid, ranks);
  Search search;
  std::vector<Box> boxes;
  const auto choose_cut = [&](const Extent& extent, int, int n) {
    return search.best(extent, n).cut;
  };
  divide(whole_box(grid), 0, ranks, choose_cut, boxes);
  return {grid, std::move(boxes)};
}

Layout bisected_by_weight(const Shape& grid, const RankWeights& weights) {
  expect(grid.size() == 3 && !weights.empty(), "{} over {} ranks", grid, weights.size());
  const auto choose_cut = [&](const Extent& extent, int first, int ranks) {
    const auto begin = weights.begin() + first, middle = begin + ranks / 2;
    const double a = std::accumulate(begin, middle, 0.0);
    const double b = std::accumulate(middle, begin + ranks, 0.0);
    Cut best;
    double time = ranks > 1 ? static_cast<double>(tokens(extent)) / *begin : 0;
    for (const std::size_t axis : {1, 2, 0}) {
      const std::int64_t down = to_integer(static_cast<double>(extent[axis]) * a / (a + b));
      for (const std::int64_t at : {down, down + 1}) {
        if (ranks == 1 || at < 1 || at >= extent[axis]) continue;
        const Cut cut{axis, at, ranks / 2};
        const auto [left, right] = parts(extent, cut);
        const double last =
            std::max(static_cast<double>(tokens(left)) / a, static_cast<double>(tokens(right)) / b);
        if (last < time) {
          best = cut;
          time = last;
        }
      }
    }
    return best;
  };
  std::vector<Box> boxes;
  divide(whole_box(grid), 0, static_cast<int>(weights.size()), choose_cut, boxes);
  return {grid, std::move(boxes)};
}

}  // namespace reelmesh
