#include <gtest/gtest.h>

#include <algorithm>

#include "models/common/trainable.hpp"

namespace reelmesh {
namespace {

TEST(ReplicaBorders, AreBetweenRowsAndEqualUpToOne) {
  const std::vector<Box> parts{
      {{0, 2}, {3, 5}}, {{0, 0}, {0, 4}}, {{4, 0}, {7, 2}}, {{0, 3}, {2, 0}}, {{0, 0}, {1, 9}}};
  std::vector<std::int64_t> between{0};  // numbers of elements before each row
  for (const Box& part : parts) {
    for (std::int64_t row = 0; row < part.extent[0]; ++row) {
      between.push_back(between.back() + part.extent[1]);
    }
  }
  const std::int64_t all = between.back();
  ASSERT_EQ(all, 38);
  for (const int replicas : {1, 2, 3, 8, 38, 100}) {
    const std::vector<std::int64_t> borders = replica_borders(parts, replicas);
    ASSERT_EQ(std::ssize(borders), replicas + 1);
    EXPECT_EQ(borders.front(), 0);
    EXPECT_EQ(borders.back(), all);
    EXPECT_TRUE(std::ranges::is_sorted(borders));
    for (std::size_t i = 0; i < borders.size(); ++i) {
      EXPECT_NE(std::ranges::find(between, borders[i]), between.end()) << borders[i];
      EXPECT_LE(std::abs(borders[i] - all * static_cast<std::int64_t>(i) / replicas), 5) << i;
    }
  }
}

TEST(ReplicaBorders, OfNothing) {
  EXPECT_EQ(replica_borders({}, 2), (std::vector<std::int64_t>{0, 0, 0}));
}

}  // namespace
}  // namespace reelmesh
