#include "plan/queues.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace reelmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(Queues, GiveEachTaskToOneOfItsGroups) {
  for (const std::size_t groups : {1, 2, 16, 17, 31, 33, 64, 100}) {
    const Queues queues(groups);
    EXPECT_EQ(queues.count(), (groups + 15) / 16);
    std::vector<int> taken(500, 0);
    for (std::size_t group = 0; group < groups; ++group) {
      for (std::size_t turn = 0;; ++turn) {
        const std::size_t task =
            queues.task(queues.of_group(group), queues.position_by_turns(group, turn));
        if (task >= taken.size()) break;
        ++taken[task];
        EXPECT_THAT(queues.groups_of_task(task), ::testing::Contains(group));
      }
    }
    EXPECT_THAT(taken, ::testing::Each(1)) << groups;
    for (const std::size_t task : {0, 7, 499}) {
      EXPECT_LE(queues.groups_of_task(task).size(), 16U);
    }
  }
}

// The ranges of batches that are encoded, and made, in their order.
std::vector<std::pair<std::string, std::pair<std::size_t, std::size_t>>> played(
    std::size_t batches, std::size_t tail, std::int64_t queue_bytes) {
  std::vector<std::pair<std::string, std::pair<std::size_t, std::size_t>>> all;
  Rounds rounds(batches, tail, queue_bytes, [](std::size_t) { return 10; });
  for (auto round = rounds.next(); round; round = rounds.next()) {
    if (round->encoded > round->first) {
      all.emplace_back("encode", std::pair(round->first, round->encoded));
    }
    all.emplace_back(round->begins_tail ? "make by tail" : "make",
                     std::pair(round->first, round->end));
  }
  return all;
}

TEST(Rounds, EncodeWhatTheQueueHoldsAndEndWhereTheTailBegins) {
  EXPECT_THAT(played(5, 0, 100), ElementsAre(Pair("encode", Pair(0, 5)), Pair("make", Pair(0, 5))));
  EXPECT_THAT(played(5, 0, 25), ElementsAre(Pair("encode", Pair(0, 2)), Pair("make", Pair(0, 2)),
                                            Pair("encode", Pair(2, 4)), Pair("make", Pair(2, 4)),
                                            Pair("encode", Pair(4, 5)), Pair("make", Pair(4, 5))));
  EXPECT_THAT(played(5, 2, 100), ElementsAre(Pair("encode", Pair(0, 5)), Pair("make", Pair(0, 3)),
                                             Pair("make by tail", Pair(3, 5))));
  EXPECT_THAT(played(2, 2, 5),
              ElementsAre(Pair("encode", Pair(0, 1)), Pair("make by tail", Pair(0, 1)),
                          Pair("encode", Pair(1, 2)), Pair("make", Pair(1, 2))))
      << "one batch where none fits";
  EXPECT_TRUE(played(0, 0, 100).empty());
}

}  // namespace
}  // namespace reelmesh
