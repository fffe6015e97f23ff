#include "layout/layout.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

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

TEST(Cut, ByWeight) {
  using Offsets = std::vector<std::int64_t>;
  const struct {
    std::int64_t extent;
    RankWeights weights;
    Offsets offsets;
  } table[] = {
      {8, {1, 3}, {0, 2, 8}},
      {30, {1, 1, 4}, {0, 5, 10, 30}},
      {30, {2.5, 2.5, 1, 1}, {0, 11, 22, 26, 30}},
      {7, {1, 1, 1}, {0, 3, 5, 7}},
      {3, {1, 100}, {0, 0, 3}},  // 1 on the slow rank would take as long as 100 on the fast one
      {2, {1, 1, 1, 1}, {0, 1, 2, 2, 2}},
      {0, {1, 2}, {0, 0, 0}},
      {10, {1e-3, 1e6}, {0, 0, 10}},
      {5, {7}, {0, 5}},
  };
  for (const auto& row : table) EXPECT_EQ(cut_by_weight(row.extent, row.weights), row.offsets);
}

TEST(Cut, ByEqualWeightsIsTheEvenCut) {
  for (std::int64_t extent : {0, 1, 7, 13, 30, 226, 17776}) {
    for (int parts = 1; parts <= 64; ++parts) {
      const auto offsets = cut_by_weight(extent, RankWeights(std::size_t(parts), 0.3));
      for (int i = 0; i <= parts; ++i) {
        EXPECT_EQ(offsets[std::size_t(i)], cut_offset(extent, parts, i));
      }
    }
  }
}

// Compared with all cuts into three parts.
TEST(Cut, ByWeightHasTheSmallestMakespan) {
  for (const RankWeights& weights : {RankWeights{1, 2, 3}, {5, 0.5, 1}, {1, 1, 1.1}, {3, 1, 8}}) {
    for (std::int64_t extent = 0; extent <= 30; ++extent) {
      const auto time = [&](std::int64_t a, std::int64_t b) {
        return std::max(
            {double(a) / weights[0], double(b - a) / weights[1], double(extent - b) / weights[2]});
      };
      double best = 1e9;
      for (std::int64_t a = 0; a <= extent; ++a) {
        for (std::int64_t b = a; b <= extent; ++b) best = std::min(best, time(a, b));
      }
      const auto offsets = cut_by_weight(extent, weights);
      EXPECT_EQ(time(offsets[1], offsets[2]), best) << extent;
    }
  }
}

TEST(Cut, RefusesWeightsThatAreNotPositive) {
  EXPECT_THROW(cut_by_weight(4, {1, 0}), Error);
  EXPECT_THROW(cut_by_weight(4, {1, -1}), Error);
  EXPECT_THROW(cut_by_weight(4, {1, NAN}), Error);
}

TEST(Layout, GridByWeightCutsEachPartAmongItsRanks) {
  // Ranks 0 and 1 are half as fast together as ranks 2 and 3.
  const Layout layout = Layout::grid({6, 8}, {2, 2}, {1, 3, 4, 4});
  EXPECT_EQ(layout.box(0), (Box{{0, 0}, {2, 2}}));
  EXPECT_EQ(layout.box(1), (Box{{0, 2}, {2, 6}}));
  EXPECT_EQ(layout.box(2), (Box{{2, 0}, {4, 4}}));
  EXPECT_EQ(layout.box(3), (Box{{2, 4}, {4, 4}}));
  EXPECT_TRUE(layout.is_partition());
  EXPECT_THROW(Layout::grid({6, 8}, {2, 2}, {1, 2}), Error);
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

TEST(Layout, ScalesAndTakesAnAxis) {
  const Layout rows = Layout::cut({3, 7}, 1, 2);
  EXPECT_EQ(rows.scaled(1, 8).box(1), (Box{{0, 32}, {3, 24}}));
  EXPECT_EQ(rows.with_axis(1, 4).box(1), (Box{{0, 0, 4}, {3, 4, 3}}));
  EXPECT_EQ(rows.with_axis(1, 4).without_axis(1), rows);
  EXPECT_THROW(rows.without_axis(1), Error) << "the axis is cut";
  EXPECT_EQ(Layout::cut({1, 3}, 0, 2).without_axis(1).box(1), (Box{{0}, {0}}));
}

TEST(Layout, OfSomeRanks) {
  const Layout rows = Layout::cut({3, 7}, 1, 4);
  const Layout some = rows.of_ranks({3, 1});
  EXPECT_EQ(some.ranks(), 2);
  EXPECT_EQ(some.box(0), rows.box(3));
  EXPECT_EQ(some.box(1), rows.box(1));
  EXPECT_FALSE(some.is_partition());
}

TEST(Layout, LosesWhatIsCroppedAway) {
  const Layout cut = Layout::cut({6, 2}, 0, 3);
  const Layout front = cut.cropped(0, 3, 6);
  EXPECT_EQ(front.global(), (Shape{3, 2}));
  EXPECT_TRUE(front.box(0).empty());
  EXPECT_EQ(front.box(1), (Box{{0, 0}, {1, 2}}));
  EXPECT_EQ(front.box(2), (Box{{1, 0}, {2, 2}}));
  EXPECT_TRUE(front.is_partition());
  const Layout middle = cut.cropped(0, 1, 5);
  EXPECT_EQ(middle.box(0), (Box{{0, 0}, {1, 2}}));
  EXPECT_EQ(middle.box(2), (Box{{3, 0}, {1, 2}}));
  EXPECT_TRUE(middle.is_partition());
  EXPECT_EQ(cut.cropped(0, 0, 6), cut);
  EXPECT_THROW(cut.cropped(0, 0, 7), Error);
}

// By definition: all boxes are pairwise disjoint, and their sizes add up to that of the array.
bool is_partition_by_pairs(const Layout& layout) {
  std::int64_t held = 0;
  for (int r = 0; r < layout.ranks(); ++r) {
    held += layout.box(r).numel();
    for (int s = 0; s < r; ++s) {
      if (!intersect(layout.box(r), layout.box(s)).empty()) return false;
    }
  }
  return held == numel(layout.global());
}

// Random grids; in some of them a box is moved, grown, emptied, duplicated or swapped.
TEST(Layout, TellsPartitionsAsTheDefinitionDoes) {
  std::mt19937 random(11);
  const auto roll = [&](std::int64_t low, std::int64_t high) {
    return low + std::int64_t(random() % std::uint64_t(high - low + 1));
  };
  int partitions = 0, others = 0;
  for (int i = 0; i < 3000; ++i) {
    Shape global;
    std::vector<int> parts;
    for (std::int64_t axis = roll(1, 4); axis > 0; --axis) {
      global.push_back(roll(1, 6));
      parts.push_back(int(roll(1, 3)));
    }
    const Layout grid = Layout::grid(global, parts);
    std::vector<Box> boxes;
    for (int r = 0; r < grid.ranks(); ++r) boxes.push_back(grid.box(r));
    for (std::int64_t changes = roll(0, 2); changes > 0; --changes) {
      Box& box = boxes[std::size_t(roll(0, std::ssize(boxes) - 1))];
      const auto axis = std::size_t(roll(0, std::ssize(global) - 1));
      switch (roll(0, 4)) {
        case 0:
          if (box.end(axis) < global[axis]) ++box.offset[axis];
          break;
        case 1:
          if (box.end(axis) < global[axis]) ++box.extent[axis];
          break;
        case 2:
          box.extent[axis] = 0;
          break;
        case 3:
          box = boxes.front();
          break;
        default:
          std::swap(box, boxes.back());
      }
    }
    const Layout layout(global, boxes);
    EXPECT_EQ(layout.is_partition(), is_partition_by_pairs(layout)) << to_string(layout);
    ++(layout.is_partition() ? partitions : others);
  }
  EXPECT_GT(partitions, 500);
  EXPECT_GT(others, 500);
  EXPECT_TRUE(Layout({0, 3}, {Box{{0, 0}, {0, 3}}}).is_partition()) << "of no elements";
  EXPECT_TRUE(Layout::cut({13, 300, 45}, 1, 4096).is_partition());
}

// An overlap and a hole of the same size: sizes add up to that of the array, but no partition.
TEST(Layout, IsNoPartitionWhereAHoleMakesUpForAnOverlap) {
  EXPECT_FALSE(Layout({4}, {Box{{0}, {2}}, Box{{0}, {2}}}).is_partition());
  EXPECT_FALSE(Layout({2, 2}, {Box{{0, 0}, {1, 2}}, Box{{0, 0}, {2, 1}}}).is_partition());
  EXPECT_FALSE(
      Layout({2, 2, 2}, {Box{{0, 0, 0}, {2, 2, 1}}, Box{{0, 0, 0}, {1, 2, 2}}}).is_partition());
}

TEST(Layout, RefusesBoxesOutsideTheArray) {
  EXPECT_THROW(Layout({4}, {Box{{2}, {3}}}), Error);
  EXPECT_THROW(Layout({4}, {Box{{-1}, {3}}}), Error);
}

}  // namespace
}  // namespace reelmesh
