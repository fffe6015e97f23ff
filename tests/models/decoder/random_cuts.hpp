#pragma once
// Clips of random size, cut into random rectangles of rows and columns.
#include <functional>
#include <random>

#include "support/numbered.hpp"
#include "support/ranks.hpp"

namespace reelmesh::test {

struct RandomCut {
  comm::Group group;
  std::int64_t frames, rows, columns;
  Layout cut;     ///< [row, column] over the group; some boxes may be empty
  unsigned seed;  ///< for the values of the clip
};

/// Calls `check` with two clips of at most `max_frames` frames for each number of ranks, on the
/// ranks of the group.
inline void for_random_cuts(unsigned seed, int max_frames,
                            const std::function<void(const RandomCut&)>& check) {
  const auto world = test::world();
  std::mt19937 random(seed);
  for (int ranks = 1; ranks <= world.size(); ++ranks) {
    const comm::Group group = world.range(0, ranks);
    for (int i = 0; i < 2; ++i) {
      const std::int64_t frames = random() % unsigned(max_frames) + 1;
      const std::int64_t rows = random() % 6 + 1, columns = random() % 6 + 1;
      const Layout cut = random_partition({rows, columns}, ranks, random);
      if (group.member()) check({group, frames, rows, columns, cut, unsigned(ranks * 10 + i)});
    }
  }
}

}  // namespace reelmesh::test
