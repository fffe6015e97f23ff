#include "layout/layout.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace reelmesh {
namespace {

TEST(Cut, IsEvenWithinOneAndCoversTheExtent) {
  for (std::int64_t extent : {0, 1, 7, 13, 30, 226}) {
    for (int parts = 1; parts <= 64; ++parts) {
      std::int64_t smallest = extent + 1, largest = 0, sum = 0;
      for (int i = 0; i < parts; ++i) {
        const std::int64_t part = cut_offset(extent, parts, i + 1) - cut_offset(extent, parts, i);
        smallest = std::min(smallest, part);
        largest = std::max(largest, part);
        sum += part;
      }
      EXPECT_EQ(sum, extent);
      EXPECT_LE(largest - smallest, 1) << extent << " in " << parts;
    }
  }
}

TEST(Cut, BySpeed) {
  using Offsets = std::vector<std::int64_t>;
  const struct {
    std::int64_t extent;
    std::vector<double> speeds;
    Offsets offsets;
  } table[] = {
      {8, {1, 3}, {0, 2, 8}},
      {30, {1, 1, 4}, {0, 5, 10, 30}},
      {30, {2.5, 2.5, 1, 1}, {0, 11, 22, 26, 30}},
      {7, {1, 1, 1}, {0, 3, 5, 7}},
      {3, {1, 100}, {0, 0, 3}},  // one for the slow rank would take as long as 100
      {2, {1, 1, 1, 1}, {0, 1, 2, 2, 2}},
      {0, {1, 2}, {0, 0, 0}},
      {10, {1e-3, 1e6}, {0, 0, 10}},
      {5, {7}, {0, 5}},
  };
  for (const auto& row : table) EXPECT_EQ(cut_by_speed(row.extent, row.speeds), row.offsets);
}

TEST(Cut, ByEqualSpeedsIsTheEvenCut) {
  for (std::int64_t extent : {0, 1, 7, 13, 30, 226, 17776}) {
    for (int parts = 1; parts <= 64; ++parts) {
      const auto offsets = cut_by_speed(extent, std::vector<double>(std::size_t(parts), 0.3));
      for (int i = 0; i <= parts; ++i) {
        EXPECT_EQ(offsets[std::size_t(i)], cut_offset(extent, parts, i));
      }
    }
  }
}

// No cut of the integers is done earlier: tried for all cuts into three parts.
TEST(Cut, BySpeedIsTheFastest) {
  for (const std::vector<double>& speeds :
       {std::vector<double>{1, 2, 3}, {5, 0.5, 1}, {1, 1, 1.1}, {3, 1, 8}}) {
    for (std::int64_t extent = 0; extent <= 30; ++extent) {
      const auto time = [&](std::int64_t a, std::int64_t b) {
        return std::max(
            {double(a) / speeds[0], double(b - a) / speeds[1], double(extent - b) / speeds[2]});
      };
      double best = 1e9;
      for (std::int64_t a = 0; a <= extent; ++a) {
        for (std::int64_t b = a; b <= extent; ++b) best = std::min(best, time(a, b));
      }
      const auto offsets = cut_by_speed(extent, speeds);
      EXPECT_EQ(time(offsets[1], offsets[2]), best) << extent;
    }
  }
}

TEST(Cut, RefusesSpeedsThatAreNone) {
  EXPECT_THROW(cut_by_speed(4, {1, 0}), Error);
  EXPECT_THROW(cut_by_speed(4, {1, -1}), Error);
  EXPECT_THROW(cut_by_speed(4, {1, NAN}), Error);
}

TEST(Layout, GridBySpeedCutsEachPartAmongItsRanks) {
  // Ranks 0 and 1 are half as fast together as ranks 2 and 3.
  const Layout layout = Layout::grid({6, 8}, {2, 2}, {1, 3, 4, 4});
  EXPECT_EQ(layout.box(0), (Box{{0, 0}, {2, 2}}));
  EXPECT_EQ(layout.box(1), (Box{{0, 2}, {2, 6}}));
  EXPECT_EQ(layout.box(2), (Box{{2, 0}, {4, 4}}));
  EXPECT_EQ(layout.box(3), (Box{{2, 4}, {4, 4}}));
  EXPECT_TRUE(layout.is_partition());
  EXPECT_THROW(Layout::grid({6, 8}, {2, 2}, {1, 2}), Error);
}

TEST(Layout, PartOfARanksLayout) {
  const Layout rows = Layout::cut({3, 7}, 1, 2);
  EXPECT_EQ(rows.embed(3, 6).part(3, 2), rows);
  EXPECT_THROW(rows.part(1, 2), Error);
}

TEST(Layout, ThirtyRowsOnSevenRanks) {
  const Layout layout = Layout::cut({13, 30, 45}, 1, 7);
  const std::vector<std::int64_t> rows{5, 5, 4, 4, 4, 4, 4};
  std::int64_t next = 0;
  for (int r = 0; r < 7; ++r) {
    EXPECT_EQ(layout.box(r), (Box{{0, next, 0}, {13, rows[std::size_t(r)], 45}}));
    next += rows[std::size_t(r)];
  }
  EXPECT_EQ(next, 30);
}

TEST(Layout, EveryRankCountFrom1To64IsAPartition) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    EXPECT_TRUE(Layout::cut({3, 7, 5}, 1, ranks).is_partition()) << ranks;
    EXPECT_TRUE(Layout::cut({3, 7, 5}, 0, ranks).is_partition()) << ranks;
    if (ranks % 2 == 0) {
      EXPECT_TRUE(Layout::grid({3, 7, 5}, {2, ranks / 2, 1}).is_partition()) << ranks;
    }
  }
}

TEST(Layout, MoreRanksThanRowsLeavesEmptyBoxes) {
  const Layout layout = Layout::cut({3, 2}, 0, 5);
  int empty = 0;
  for (int r = 0; r < 5; ++r) empty += layout.box(r).empty() ? 1 : 0;
  EXPECT_EQ(empty, 2);
  EXPECT_TRUE(layout.is_partition());
  EXPECT_FALSE(layout.is_replicated());
}

TEST(Layout, TellsPartitionsFromReplicasFromHalos) {
  EXPECT_TRUE(Layout::replicated({4, 4}, 3).is_replicated());
  EXPECT_FALSE(Layout::replicated({4, 4}, 3).is_partition());
  EXPECT_TRUE(Layout::on_one_rank({4, 4}, 3, 2).is_replicated());
  EXPECT_TRUE(Layout::on_one_rank({4, 4}, 3, 2).is_partition());
  const Layout halo = Layout::cut({4, 4}, 0, 3).grown(0, 1);
  EXPECT_FALSE(halo.is_partition());
  EXPECT_FALSE(halo.is_replicated());
  // A hole is not a partition either.
  EXPECT_FALSE(Layout({4}, {Box{{0}, {1}}, Box{{2}, {2}}}).is_partition());
}

TEST(Layout, GrowsWithinTheArrayOnly) {
  const Layout grown = Layout::cut({10, 3}, 0, 3).grown(0, 2);
  EXPECT_EQ(grown.box(0), (Box{{0, 0}, {6, 3}}));
  EXPECT_EQ(grown.box(1), (Box{{2, 0}, {7, 3}}));
  EXPECT_EQ(grown.box(2), (Box{{5, 0}, {5, 3}}));
  const Layout with_empty = Layout::cut({1, 3}, 0, 2).grown(0, 2);
  EXPECT_TRUE(with_empty.box(1).empty());
}

TEST(Layout, ScalesEmbedsAndTakesAnAxis) {
  const Layout rows = Layout::cut({3, 7}, 1, 2);
  EXPECT_EQ(rows.scaled(1, 8).box(1), (Box{{0, 32}, {3, 24}}));
  EXPECT_EQ(rows.with_axis(1, 4).box(1), (Box{{0, 0, 4}, {3, 4, 3}}));
  const Layout embedded = rows.embed(3, 6);
  EXPECT_EQ(embedded.ranks(), 6);
  EXPECT_TRUE(embedded.box(0).empty());
  EXPECT_EQ(embedded.box(4), rows.box(1));
  EXPECT_TRUE(embedded.is_partition());
}

TEST(Layout, LosesItsFront) {
  const Layout layout = Layout::cut({6, 2}, 0, 3).without_front(0, 3);
  EXPECT_EQ(layout.global(), (Shape{3, 2}));
  EXPECT_TRUE(layout.box(0).empty());
  EXPECT_EQ(layout.box(1), (Box{{0, 0}, {1, 2}}));
  EXPECT_EQ(layout.box(2), (Box{{1, 0}, {2, 2}}));
  EXPECT_TRUE(layout.is_partition());
}

TEST(Layout, RefusesBoxesOutsideTheArray) {
  EXPECT_THROW(Layout({4}, {Box{{2}, {3}}}), Error);
  EXPECT_THROW(Layout({4}, {Box{{-1}, {3}}}), Error);
}

}  // namespace
}  // namespace reelmesh
