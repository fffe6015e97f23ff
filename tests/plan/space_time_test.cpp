#include "plan/space_time.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace reelmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Shape tokens{16, 16, 16};  // 16 frames of 256 x 256 pixels
const SpaceTimeSizes xl{28, 1152, 16, 2, 4};

TEST(SpaceTimeLayout, CutsFramesAsLongAsThereAreEnough) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    const SpaceTime layouts = space_time_layout(Shard::automatic, tokens, ranks);
    EXPECT_TRUE(layouts.frames_are_whole()) << ranks;
    EXPECT_EQ(layouts.grid, Layout::cut(tokens, 0, ranks));
  }
  EXPECT_EQ(space_time_layout(Shard::automatic, {15, 7, 5}, 5).grid, Layout::cut({15, 7, 5}, 0, 5));
}

TEST(SpaceTimeLayout, CutsRowsWhereRanksOutnumberFrames) {
  EXPECT_EQ(space_time_layout(Shard::automatic, tokens, 32).grid, Layout::grid(tokens, {16, 2, 1}));
  EXPECT_EQ(space_time_layout(Shard::automatic, tokens, 24).row_parts, 3);
  EXPECT_EQ(space_time_layout(Shard::automatic, {1, 16, 16}, 8).row_parts, 8);
  EXPECT_EQ(space_time_layout(Shard::automatic, tokens, 17).row_parts, 1)
      << "17 parts of 16 rows are no better than 17 of 16 frames";
}

TEST(SpaceTimeLayout, DoesAsAsked) {
  EXPECT_EQ(space_time_layout(Shard::height, tokens, 4).row_parts, 4);
  EXPECT_EQ(space_time_layout(Shard::frames, tokens, 32).row_parts, 1);
  const SpaceTime grid = space_time_layout(Shard::grid, tokens, 8);
  EXPECT_GT(grid.row_parts, 1);
  EXPECT_LT(grid.row_parts, 8);
  EXPECT_EQ(space_time_layout(Shard::grid, tokens, 7).row_parts, 1) << "7 has no grid";
}

TEST(SpaceTimeLayout, EveryRankCountFrom1To64IsAPartition) {
  for (const Shape& grid : {tokens, Shape{15, 7, 5}, Shape{64, 32, 32}, Shape{15, 15, 27}}) {
    for (int ranks = 1; ranks <= 64; ++ranks) {
      for (const Shard shard : {Shard::automatic, Shard::height, Shard::frames, Shard::grid}) {
        const SpaceTime layouts = space_time_layout(shard, grid, ranks);
        EXPECT_EQ(layouts.grid.ranks(), ranks);
        EXPECT_TRUE(layouts.grid.is_partition()) << ranks;
        EXPECT_TRUE(layouts.places.is_partition()) << ranks;
      }
    }
  }
}

TEST(Relayouts, AreTwoOfAPairAndQuarterOfUlysses) {
  for (const int ranks : {2, 4, 8, 16}) {
    const auto moves = relayouts(space_time_layout(Shard::automatic, tokens, ranks), xl);
    ASSERT_EQ(moves.size(), 2U);
    std::int64_t sent = 0;
    for (const NamedMove& move : moves) {
      for (int r = 0; r < ranks; ++r) sent += move.sent_bytes(r, xl);
    }
    // All that does not stay: 1/P² of the tokens on each rank.
    const std::int64_t all = 4096 * 1152 * 2 * 4;
    EXPECT_EQ(sent, 2 * (all - all / ranks));
    // Ulysses sends queries, keys, values and results, in spatial and in temporal attention.
    EXPECT_EQ(4 * sent, 8 * (all - all / ranks));
  }
  EXPECT_EQ(relayouts(space_time_layout(Shard::automatic, tokens, 1), xl).front().sent_bytes(0, xl),
            0);
}

TEST(Relayouts, AreFourWhereRanksShareAFrame) {
  const auto moves = relayouts(space_time_layout(Shard::automatic, tokens, 32), xl);
  ASSERT_EQ(moves.size(), 4U);
  // 128 tokens of 1152 channels, three parts, two branches: half of the heads leave.
  EXPECT_EQ(moves[0].sent_bytes(5, xl), 128 * 1152 * 3 * 2 * 4 / 2);
  EXPECT_EQ(moves[1].sent_bytes(5, xl), 128 * 1152 * 2 * 4 / 2);
}

TEST(Describe, NamesTheRelayoutsOfSpaceAndTime) {
  const Plan plan = make_plan({}, {2, 10, 10}, 4);
  const std::string text = describe(plan, space_time_layout(Shard::automatic, tokens, 4), xl);
  for (const char* part :
       {"4 ranks", "denoise: ranks 0-3", "[12:16, 0:16, 0:16]", "[0:16, 192:256]",
        "frames -> places: 28 times a step, at most 6.75 MiB", "places -> frames"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const std::string alone =
      describe(make_plan({}, {2, 10, 10}, 1), space_time_layout(Shard::automatic, tokens, 1), xl);
  EXPECT_THAT(alone, Not(HasSubstr("->")));
}

}  // namespace
}  // namespace reelmesh
