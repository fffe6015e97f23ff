#include "layout/space_time.hpp"

#include <gtest/gtest.h>

namespace reelmesh {
namespace {

TEST(SpaceTime, SixteenFramesOnThreeRanks) {
  const SpaceTime layouts({16, 16, 16}, 3, 1, 16);
  EXPECT_TRUE(layouts.frames_are_whole());
  EXPECT_EQ(layouts.spatial.box(0), (Box{{0, 0}, {6, 256}}));
  EXPECT_EQ(layouts.spatial.box(2), (Box{{11, 0}, {5, 256}}));
  EXPECT_EQ(layouts.temporal.box(0), (Box{{0, 0}, {16, 86}}));
  EXPECT_EQ(layouts.temporal.box(2), (Box{{0, 171}, {16, 85}}));
}

TEST(SpaceTime, RowsOfAFrameStandOnNeighbouringRanks) {
  const SpaceTime layouts({2, 7, 5}, 2, 3, 5);
  EXPECT_EQ(layouts.tokens.box(1), (Box{{0, 3, 0}, {1, 2, 5}}));
  EXPECT_EQ(layouts.spatial.box(1), (Box{{0, 15}, {1, 10}}));
  EXPECT_EQ(layouts.spatial.box(3), (Box{{1, 0}, {1, 15}}));
  // Five heads over the three ranks that share a frame.
  EXPECT_EQ(layouts.by_heads->heads.box(1), (Box{{0, 0, 2}, {1, 35, 2}}));
  EXPECT_EQ(layouts.by_heads->heads.box(5), (Box{{1, 0, 4}, {1, 35, 1}}));
  EXPECT_EQ(layouts.by_heads->tokens.box(1), (Box{{0, 15, 0}, {1, 10, 5}}));
}

TEST(SpaceTime, EveryRankCountIsAPartition) {
  for (const Shape& tokens : {Shape{16, 16, 16}, Shape{15, 7, 5}, Shape{1, 3, 2}}) {
    for (int ranks = 1; ranks <= 64; ++ranks) {
      for (int rows = 1; rows <= ranks; ++rows) {
        if (ranks % rows != 0) continue;
        const SpaceTime cut(tokens, ranks / rows, rows, 5);
        EXPECT_EQ(cut.by_heads.has_value(), rows > 1);
        std::vector<Layout> layouts{cut.tokens, cut.spatial, cut.temporal};
        if (cut.by_heads)
          layouts.insert(layouts.end(), {cut.by_heads->tokens, cut.by_heads->heads});
        for (const Layout& layout : layouts) {
          EXPECT_EQ(layout.ranks(), ranks);
          EXPECT_TRUE(layout.is_partition()) << ranks << " ranks, " << to_string(layout);
        }
      }
    }
  }
}

}  // namespace
}  // namespace reelmesh
