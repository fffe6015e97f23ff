// In how many shares the heads of a rank are sent, if attention needs all keys at once.
#include <gtest/gtest.h>

#include "layout/attend.hpp"

namespace reelmesh {
namespace {

// CogVideoX-5b, 49 frames of 480 × 720: 17,776 tokens are 139 tiles of a head and item.
constexpr std::int64_t tiles = 139, h100 = 132, a100 = 108;

TEST(HeadShares, LeaveEachShareSixWavesOnItsGpu) {
  // 48 heads on a replica with two ranks for guidance and four for heads: 12 heads of one item, in
  // shares of 6 × 139 tiles, 6.3 waves. In three shares they would have 4.2.
  EXPECT_EQ(Attend::head_shares(12, tiles, h100, true, 0), 2);
  // On eight ranks for heads: 6 heads of two items.
  EXPECT_EQ(Attend::head_shares(6, 2 * tiles, h100, true, 0), 2);
  // On four: 12 heads of two items, in shares of 6.3 waves again.
  EXPECT_EQ(Attend::head_shares(12, 2 * tiles, h100, true, 0), 4);
  EXPECT_EQ(Attend::head_shares(48, tiles, h100, true, 0), 4);
  // 16 ranks: 3 heads of two items have 6.3 waves together.
  EXPECT_EQ(Attend::head_shares(3, 2 * tiles, h100, true, 0), 1);
  // The smallest share counts: 3 of 7 heads have 6.3 waves of an H100, 2 have 5.1 of an A100.
  EXPECT_EQ(Attend::head_shares(7, 2 * tiles, h100, true, 0), 2);
  EXPECT_EQ(Attend::head_shares(7, 2 * tiles, a100, true, 0), 2);
  EXPECT_EQ(Attend::head_shares(9, 2 * tiles, a100, true, 0), 3);
}

TEST(HeadShares, AreExactlySixWaves) {
  EXPECT_EQ(Attend::head_shares(2, 6, 1, true, 0), 2);
  EXPECT_EQ(Attend::head_shares(2, 5, 1, true, 0), 1);
}

// There messages take longer than the multiprocessors lose.
TEST(HeadShares, BetweenNodesAreMessagesOf4MiB) {
  constexpr std::int64_t MiB = 1 << 20;
  EXPECT_EQ(Attend::head_shares(12, tiles, h100, false, 100 * MiB), 4);
  EXPECT_EQ(Attend::head_shares(12, tiles, h100, false, 16 * MiB), 4);
  EXPECT_EQ(Attend::head_shares(12, tiles, h100, false, 16 * MiB - 1), 3);
  EXPECT_EQ(Attend::head_shares(12, tiles, h100, false, 7 * MiB), 1);
  EXPECT_EQ(Attend::head_shares(12, tiles, h100, false, 0), 1);
  EXPECT_EQ(Attend::head_shares(3, 1, h100, false, 100 * MiB), 3);
}

TEST(HeadShares, AreOneWithoutHeads) {
  EXPECT_EQ(Attend::head_shares(0, tiles, h100, true, 0), 1);
  EXPECT_EQ(Attend::head_shares(0, tiles, h100, false, 0), 1);
}

}  // namespace
}  // namespace reelmesh
