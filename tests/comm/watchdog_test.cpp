#include "comm/watchdog.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "support/ranks.hpp"

namespace reelmesh::comm {
namespace {

TEST(Watchdog, HandsOutEachNumberOnceWhileRank0CallsNoMpi) {
  const Group world = test::world();
  Watchdog watchdog(world, {});
  ASSERT_TRUE(watchdog.has_counter());
  constexpr std::int64_t each = 50;
  const std::int64_t others = each * (world.size() - 1);
  std::vector<std::int64_t> mine;
  if (world.rank() > 0) {
    for (std::int64_t i = 0; i < each; ++i) mine.push_back(watchdog.take_number(7));
  } else {  // until the others have theirs
    do {
      mine.push_back(watchdog.take_number(7));
    } while (mine.back() - (std::ssize(mine) - 1) < others);
  }
  EXPECT_TRUE(std::ranges::is_sorted(mine));
  const bool first = watchdog.take_number(Watchdog::reports) == 0;
  EXPECT_EQ(world.sum(first ? 1.0 : 0.0), 1) << "one rank is the first";
  std::string text;
  for (const std::int64_t number : mine) text += std::to_string(number) + " ";
  std::vector<std::int64_t> all;
  for (const std::string& block : world.all_gather(text)) {
    std::istringstream numbers(block);
    for (std::int64_t number = 0; numbers >> number;) all.push_back(number);
  }
  std::ranges::sort(all);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<std::int64_t>(i));
}

}  // namespace
}  // namespace reelmesh::comm
