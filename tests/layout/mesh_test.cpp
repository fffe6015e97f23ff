// What distinguishes the parts of attention that ranks have.
#include "layout/mesh.hpp"

#include <gtest/gtest.h>

namespace reelmesh {
namespace {

TEST(AttentionShare, HasTokensOfTheRankAndOfItsRowAndHeads) {
  const Mesh mesh{2, 2, 3};
  const Layout text = Layout::cut({10}, 0, 6), video = Layout::cut({13, 4}, 0, 6);
  // Ranks 0 to 2 are one row, with 2 tokens of the text and 3, 2 and 2 rows of the video each.
  using Share = std::vector<std::int64_t>;
  EXPECT_EQ(attention_share(mesh, 0, 7, {&text, &video}), (Share{2, 12, 34, 3}));
  EXPECT_EQ(attention_share(mesh, 1, 7, {&text, &video}), (Share{2, 8, 34, 2}));
  EXPECT_EQ(attention_share(mesh, 2, 7, {&text, &video}), (Share{2, 8, 34, 2}));
  EXPECT_EQ(attention_share(mesh, 5, 7, {&video}), (Share{8, 24, 2}));
}

}  // namespace
}  // namespace reelmesh
