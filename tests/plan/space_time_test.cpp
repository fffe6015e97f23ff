#include <gtest/gtest.h>

#include "layout/space_time.hpp"
#include "plan/denoise.hpp"
#include "plan/workloads.hpp"

namespace reelmesh {
namespace {

const Shape tokens{16, 16, 16};  // 16 frames of 256 x 256 pixels

DenoiseWorkload with_tokens(const Shape& grid) {
  DenoiseWorkload workload = test::stdit_xl();
  workload.latents = {grid[0], 2 * grid[1], 2 * grid[2]};
  return workload;
}

SpaceTime chosen_layouts(Shard shard, const Shape& grid, int ranks,
                         const RankWeights& weights = {}) {
  const DenoiseWorkload workload = with_tokens(grid);
  return SpaceTime::of(choose_layout(workload, {{}, shard, ranks, weights}).layout(),
                       workload.heads);
}

TEST(SpaceTimeLayout, CutsFramesAsLongAsThereAreEnough) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    const SpaceTime layouts = chosen_layouts(Shard::automatic, tokens, ranks);
    EXPECT_TRUE(layouts.frames_are_whole()) << ranks;
    EXPECT_EQ(layouts.tokens, Layout::cut(tokens, 0, ranks));
  }
  EXPECT_EQ(chosen_layouts(Shard::automatic, {15, 7, 5}, 5).tokens, Layout::cut({15, 7, 5}, 0, 5));
}

TEST(SpaceTimeLayout, CutsRowsWhereRanksOutnumberFrames) {
  EXPECT_EQ(chosen_layouts(Shard::automatic, tokens, 32).tokens, Layout::grid(tokens, {16, 2, 1}));
  EXPECT_EQ(chosen_layouts(Shard::automatic, tokens, 24).split_rows, 3);
  EXPECT_EQ(chosen_layouts(Shard::automatic, {1, 16, 16}, 8).split_rows, 8);
  EXPECT_EQ(chosen_layouts(Shard::automatic, tokens, 17).split_rows, 1)
      << "17 parts of 16 rows are no better than 17 of 16 frames";
}

TEST(SpaceTimeLayout, DoesAsAsked) {
  EXPECT_EQ(chosen_layouts(Shard::height, tokens, 4).split_rows, 4);
  EXPECT_EQ(chosen_layouts(Shard::frames, tokens, 32).split_rows, 1);
  const SpaceTime grid = chosen_layouts(Shard::grid, tokens, 8);
  EXPECT_GT(grid.split_rows, 1);
  EXPECT_LT(grid.split_rows, 8);
  EXPECT_EQ(chosen_layouts(Shard::grid, tokens, 7).split_rows, 1) << "7 has no grid";
}

TEST(SpaceTimeLayout, FollowsTheWeights) {
  EXPECT_EQ(chosen_layouts(Shard::automatic, tokens, 4, {1, 1, 2, 4}).tokens.box(3),
            (Box{{8, 0, 0}, {8, 16, 16}}));
}

TEST(SpaceTimeLayout, EveryRankCountFrom1To64IsAPartition) {
  for (const Shape& grid : {tokens, Shape{15, 7, 5}, Shape{64, 32, 32}, Shape{15, 15, 27}}) {
    for (int ranks = 1; ranks <= 64; ++ranks) {
      for (const Shard shard : {Shard::automatic, Shard::height, Shard::frames, Shard::grid}) {
        const SpaceTime layouts = chosen_layouts(shard, grid, ranks);
        EXPECT_EQ(layouts.tokens.ranks(), ranks);
        EXPECT_TRUE(layouts.tokens.is_partition()) << ranks;
        EXPECT_TRUE(layouts.temporal.is_partition()) << ranks;
      }
    }
  }
}

TEST(SpaceTimeLayout, HasLatentsThatEndWhereTheVideoDoes) {
  DenoiseWorkload odd = test::stdit_xl();
  odd.latents = {15, 13, 9};
  const DenoiseLayout layout = choose_layout(odd, {.ranks = 4}).layout();
  EXPECT_EQ(layout.tokens.global(), (Shape{15, 7, 5}));
  EXPECT_EQ(layout.latents, Layout::cut({15, 13, 9}, 0, 4));
  EXPECT_EQ(layout.mesh, (Mesh{1, 1, 4}));
  EXPECT_TRUE(layout.text.is_replicated());
}

}  // namespace
}  // namespace reelmesh
