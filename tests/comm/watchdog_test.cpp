#include "comm/watchdog.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/group_values.hpp"
#include "support/ranks.hpp"

namespace reelmesh::comm {
namespace {

TEST(Watchdog, HandsOutEachTaskOnceWhileRank0CallsNoMpi) {
  const Group world = test::world();
  Watchdog watchdog(world, {});
  ASSERT_TRUE(watchdog.has_queues());
  constexpr std::int64_t tasks = 200;
  std::vector<std::int64_t> mine;
  while (true) {
    const std::int64_t task = watchdog.take(7);
    if (task >= tasks) break;
    mine.push_back(task);
  }
  EXPECT_TRUE(std::ranges::is_sorted(mine));
  const bool first = watchdog.take(Watchdog::reports) == 0;
  EXPECT_EQ(world.sum(first ? 1.0 : 0.0), 1) << "one rank is the first";
  std::vector<std::int64_t> all;
  for (const std::vector<std::int64_t>& of_rank : all_gather_values(world, mine)) {
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  std::ranges::sort(all);
  EXPECT_EQ(std::ssize(all), tasks);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<std::int64_t>(i));
}

}  // namespace
}  // namespace reelmesh::comm
