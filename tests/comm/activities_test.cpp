#include "comm/activities.hpp"

#include <gtest/gtest.h>

#include "comm/peers.hpp"

namespace reelmesh::comm {
namespace {

TEST(Activities, AreThoseOfRanksThatWereHeard) {
  Beat beat;
  beat.process = 123;
  beat.host = ShortText<64>("node5");
  beat.stage = ShortText<24>("decode");
  beat.waiting = ShortText<24>("MPI_Bcast");
  beat.clip = 4;
  beat.memory = {.used = 5, .limit = 7, .others = 1};
  std::vector<Peer> peers(3);
  peers[0].connect(beat, 11.9);
  beat.step = 2;
  peers[2].connect(beat, 10);
  const std::vector<Activity> found = activities_of(peers, 12);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].rank, 0);
  EXPECT_EQ(found[0].heard_ago, 0);
  EXPECT_EQ(found[1].rank, 2);
  EXPECT_EQ(found[1].process, 123);
  EXPECT_EQ(found[1].host, "node5");
  EXPECT_EQ(found[1].stage, "decode");
  EXPECT_EQ(found[1].waiting, "MPI_Bcast");
  EXPECT_EQ(found[1].clip, 4);
  EXPECT_EQ(found[1].step, 2);
  EXPECT_EQ(found[1].layer, -1);
  EXPECT_EQ(found[1].heard_ago, 2);
  EXPECT_EQ(found[1].memory.used, 5);
  EXPECT_EQ(found[1].memory.limit, 7);
  EXPECT_EQ(found[1].memory.others, 1);
}

TEST(Activities, AreTheLastPublished) {
  Activities activities;
  EXPECT_TRUE(activities.last().empty());
  activities.publish({{.rank = 1}, {.rank = 2}});
  activities.publish({{.rank = 3}});
  ASSERT_EQ(activities.last().size(), 1U);
  EXPECT_EQ(activities.last()[0].rank, 3);
}

}  // namespace
}  // namespace reelmesh::comm
