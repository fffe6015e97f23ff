#include "comm/watchdog.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/group_values.hpp"
#include "support/ranks.hpp"

namespace reelmesh::comm {
namespace {

// Half of the ranks take tasks from the front, the others from the back, until there are no more.
TEST(Watchdog, HandsOutEachTaskOnceWhileRank0CallsNoMpi) {
  const Group world = test::world();
  Watchdog watchdog(world, {});
  ASSERT_TRUE(watchdog.has_queues());
  constexpr std::int64_t tasks = 200;
  const bool from_front = world.rank() % 2 == 0;
  std::vector<std::int64_t> mine;
  while (true) {
    const Taken taken = watchdog.take(7, from_front ? End::front : End::back);
    if (taken.front + taken.back >= tasks) break;
    mine.push_back(from_front ? taken.front : tasks - 1 - taken.back);
  }
  const Taken all_taken = watchdog.take(7, End::none);
  EXPECT_GE(all_taken.front + all_taken.back, tasks);
  if (!from_front) std::ranges::reverse(mine);
  EXPECT_TRUE(std::ranges::is_sorted(mine));
  const bool first = watchdog.take(Watchdog::reports, End::front).front == 0;
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
