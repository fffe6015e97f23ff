#include "layout/items.hpp"

#include <gtest/gtest.h>

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
