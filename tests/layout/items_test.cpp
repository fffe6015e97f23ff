#include "layout/items.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace reelmesh {
namespace {

TEST(CutItems, PrefersItemsAndTakesRowsWhereThatIsLess) {
  const auto cut = [](std::int64_t items, std::int64_t rows, int ranks) {
    const ItemCut c = cut_items(items, rows, ranks);
    return std::pair{c.items, c.rows};
  };
  EXPECT_EQ(cut(16, 32, 1), (std::pair{1, 1}));
  EXPECT_EQ(cut(16, 32, 4), (std::pair{4, 1}));
  EXPECT_EQ(cut(16, 32, 3), (std::pair{3, 1}));  // 6 images of 32 rows, not 16 of 12
  EXPECT_EQ(cut(16, 32, 64), (std::pair{16, 4}));
  EXPECT_EQ(cut(1, 32, 5), (std::pair{1, 5}));
  EXPECT_EQ(cut(3, 30, 4), (std::pair{1, 4}));  // 3 images of 9 rows, not 1 of 30
  EXPECT_EQ(cut(1, 3, 8), (std::pair{1, 3}));   // five ranks have nothing to do
}

TEST(CutItems, FollowsTheSpeedsOfRanks) {
  const auto cut = [](std::int64_t items, std::int64_t rows, const std::vector<double>& speeds) {
    const ItemCut c = cut_items(items, rows, int(speeds.size()), speeds);
    return std::pair{c.items, c.rows};
  };
  EXPECT_EQ(cut(16, 32, {1, 1, 1, 1}), (std::pair{4, 1}));
  EXPECT_EQ(cut(16, 32, {1, 3}), (std::pair{2, 1}));
  EXPECT_EQ(cut(3, 30, {2, 2, 2, 1}), (std::pair{3, 1}));  // the fourth does not help much
  EXPECT_EQ(cut(1, 32, {1, 1, 2}), (std::pair{1, 3}));
  EXPECT_EQ(cut(1, 32, {1, 1, 6}), (std::pair{1, 2}));  // one slow rank helps as much as two
}

// For random sizes and speeds, and equal speeds are as none.
TEST(ItemLayout, IsAPartitionForAnySpeeds) {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const int ranks = int(random() % 9 + 1);
    std::vector<double> speeds;
    for (int r = 0; r < ranks; ++r) speeds.push_back(std::pow(2.0, double(random() % 8)));
    const Shape shape{std::int64_t(random() % 40 + 1), std::int64_t(random() % 12 + 1), 3};
    const Layout layout = item_layout(shape, std::int64_t(random() % 6 + 1), ranks, speeds);
    EXPECT_TRUE(layout.is_partition()) << to_string(layout);
    const Layout equal = item_layout(shape, 2, ranks, std::vector<double>(speeds.size(), 7.0));
    EXPECT_EQ(equal, item_layout(shape, 2, ranks)) << to_string(equal);
  }
}

TEST(ItemLayout, FollowsTheSpeedsOfRanks) {
  const Layout frames = item_layout({16, 7, 5}, 1, 4, {1, 1, 2, 4});
  EXPECT_EQ(frames.box(0), (Box{{0, 0, 0}, {2, 7, 5}}));
  EXPECT_EQ(frames.box(3), (Box{{8, 0, 0}, {8, 7, 5}}));
  const Layout rows = item_layout({1, 32, 5}, 1, 3, {1, 1, 2});
  EXPECT_EQ(rows.box(1), (Box{{0, 8, 0}, {1, 8, 5}}));
  EXPECT_EQ(rows.box(2), (Box{{0, 16, 0}, {1, 16, 5}}));
  // 26 frames in groups of 17: the slow rank has neither.
  const Layout idle = item_layout({26, 6, 4}, 17, 3, {1, 50, 50});
  EXPECT_TRUE(idle.box(0).empty());
  EXPECT_EQ(idle.box(1), (Box{{0, 0, 0}, {17, 6, 4}}));
  EXPECT_EQ(idle.box(2), (Box{{17, 0, 0}, {9, 6, 4}}));
}

TEST(ItemLayout, HasWholeItemsOfWhichTheLastMayBeShort) {
  // 26 frames in groups of 17 on 4 ranks: 2 items, each cut by rows.
  const Layout layout = item_layout({26, 6, 4}, 17, 4);
  EXPECT_TRUE(layout.is_partition());
  EXPECT_EQ(layout.box(1), (Box{{0, 3, 0}, {17, 3, 4}}));
  EXPECT_EQ(layout.box(2), (Box{{17, 0, 0}, {9, 3, 4}}));
  const Layout two = item_layout({26, 6, 4}, 17, 2);
  EXPECT_EQ(two.box(0), (Box{{0, 0, 0}, {17, 6, 4}}));
  EXPECT_EQ(two.box(1), (Box{{17, 0, 0}, {9, 6, 4}}));
  const Layout idle = item_layout({1, 3, 4}, 1, 5);
  EXPECT_TRUE(idle.is_partition());
  EXPECT_TRUE(idle.box(3).empty());
}

}  // namespace
}  // namespace reelmesh
