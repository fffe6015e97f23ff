// What is said of ranks with other GPUs, drivers or libraries.
#include "job/unlike_devices.hpp"

#include <gtest/gtest.h>

namespace reelmesh {
namespace {

TEST(UnlikeGpus, DifferencesNameRanksAndValues) {
  const std::vector<Fact> one{{"GPU", "H100"}, {"multiprocessors", "132"}, {"cuDNN", "9.19.0"}};
  std::vector<std::vector<Fact>> ranks(6, one);
  EXPECT_EQ(differences_text(ranks), "");
  ranks[4][2].second = "9.15.1";
  EXPECT_EQ(differences_text(ranks), "cuDNN: 9.19.0 (ranks 0-3, 5), 9.15.1 (rank 4)");
  ranks[0][1].second = ranks[1][1].second = "114";
  EXPECT_EQ(differences_text(ranks),
            "multiprocessors: 114 (ranks 0-1), 132 (ranks 2-5); "
            "cuDNN: 9.19.0 (ranks 0-3, 5), 9.15.1 (rank 4)");
}

TEST(UnlikeGpus, ManyRanksAreAbbreviated) {
  std::vector<std::vector<Fact>> ranks;
  for (int rank = 0; rank < 40; ++rank) ranks.push_back({{"GPU", rank % 2 == 0 ? "A" : "B"}});
  EXPECT_EQ(differences_text(ranks),
            "GPU: A (ranks 0, 2, 4, 6, 8, 10, 12, 14, ...), "
            "B (ranks 1, 3, 5, 7, 9, 11, 13, 15, ...)");
}

}  // namespace
}  // namespace reelmesh
