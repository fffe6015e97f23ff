#include <gtest/gtest.h>

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
  return choose_layout(with_tokens(grid), {}, shard, ranks, weights).layout.space_time.value();
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
  const DenoiseLayout layout = choose_layout(odd, {}, Shard::automatic, 4).layout;
  EXPECT_EQ(layout.tokens.global(), (Shape{15, 7, 5}));
  EXPECT_EQ(layout.latents, Layout::cut({15, 13, 9}, 0, 4));
  EXPECT_EQ(layout.mesh, (Mesh{1, 1, 4}));
  EXPECT_TRUE(layout.text.is_replicated());
}

TEST(SpaceTimeBytes, AreTwoRelayoutsOfAPairAndAQuarterOfUlysses) {
  const DenoiseWorkload workload = with_tokens(tokens);
  for (const int ranks : {2, 4, 8, 16}) {
    const ChosenLayout chosen = choose_layout(workload, {}, Shard::automatic, ranks);
    ASSERT_EQ(chosen.exchanges.size(), 2U);
    EXPECT_EQ(chosen.exchanges[0].name, "frames -> positions");
    EXPECT_EQ(chosen.exchanges[0].times, 28);
    std::int64_t sent = 0;
    for (int r = 0; r < ranks; ++r) {
      sent += step_cost(workload, chosen.layout, r).sent_bytes / workload.layers;
    }
    // Everything is sent except what stays on its rank: 1/P² of the tokens on each of P ranks.
    const std::int64_t all = 4096 * 1152 * 2 * 4;
    EXPECT_EQ(sent, 2 * (all - all / ranks));
    // Ulysses sends queries, keys, values and results, in spatial and in temporal attention.
    EXPECT_EQ(4 * sent, 8 * (all - all / ranks));
  }
  const ChosenLayout alone = choose_layout(workload, {}, Shard::automatic, 1);
  EXPECT_TRUE(alone.exchanges.empty());
  EXPECT_EQ(step_cost(workload, alone.layout, 0).sent_bytes, 0);
}

TEST(SpaceTimeBytes, AreFourRelayoutsWhereRanksShareAFrame) {
  const ChosenLayout chosen = choose_layout(with_tokens(tokens), {}, Shard::automatic, 32);
  ASSERT_EQ(chosen.exchanges.size(), 4U);
  EXPECT_EQ(chosen.exchanges[0].name, "rows -> heads");
  // 128 tokens × 1152 channels × (q, k, v) × 2 branches × 4 bytes; half of the heads are sent.
  EXPECT_EQ(chosen.exchanges[0].largest_bytes, 128 * 1152 * 3 * 2 * 4 / 2);
  EXPECT_EQ(chosen.exchanges[1].largest_bytes, 128 * 1152 * 2 * 4 / 2);
}

TEST(SpaceTimeFlops, AllRanksDoWhatOneDoes) {
  const DenoiseWorkload workload = with_tokens(tokens);
  const auto all = [&](int ranks) {
    const ChosenLayout chosen = choose_layout(workload, {}, Shard::automatic, ranks);
    double flops = 0;
    for (int r = 0; r < ranks; ++r) flops += step_cost(workload, chosen.layout, r).flops;
    return flops;
  };
  for (const int ranks : {2, 3, 5, 16}) EXPECT_NEAR(all(ranks) / all(1), 1, 1e-12) << ranks;
}

}  // namespace
}  // namespace reelmesh
