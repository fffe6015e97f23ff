#include "layout/clip_layout.hpp"

#include <gtest/gtest.h>

namespace reelmesh {
namespace {

TEST(LatentsOfTokens, EndWhereTheLatentsEnd) {
  // 7 x 5 tokens of 2 x 2 latents cover 13 x 9 latents: the last row and column are partial.
  const Layout tokens = Layout::grid({3, 7, 5}, {1, 2, 2});
  const Layout latents = latents_of_tokens(tokens, {1, 2, 2}, {3, 13, 9});
  EXPECT_EQ(latents.global(), (Shape{3, 13, 9}));
  EXPECT_EQ(latents.box(0), (Box{{0, 0, 0}, {3, 8, 6}}));
  EXPECT_EQ(latents.box(3), (Box{{0, 8, 6}, {3, 5, 3}}));
  EXPECT_TRUE(latents.is_partition());
  // Two frames per token.
  EXPECT_EQ(latents_of_tokens(Layout::cut({2, 1, 1}, 0, 2), {2, 2, 2}, {4, 2, 2}).box(1),
            (Box{{2, 0, 0}, {2, 2, 2}}));
}

TEST(Conditioning, IsCutLikeTheTextAndByBranches) {
  DenoiseLayout layout;
  layout.mesh = {2, 1, 3};
  layout.text = Layout::cut({7}, 0, 3);
  const Layout both = layout.conditioning(7, 2, 16);
  EXPECT_EQ(both.ranks(), 6);
  EXPECT_TRUE(both.is_partition());
  EXPECT_EQ(both.box(1), (Box{{3, 0, 0}, {2, 1, 16}}));
  EXPECT_EQ(both.box(4), (Box{{3, 1, 0}, {2, 1, 16}}));
  EXPECT_EQ(layout.branch_rank(4), 1);
  layout.mesh = {1, 3, 1};
  EXPECT_EQ(layout.conditioning(7, 2, 16).box(1), (Box{{3, 0, 0}, {2, 2, 16}}));
  EXPECT_THROW(layout.conditioning(8, 2, 16), Error);
}

TEST(Conditioning, IsWholeForCrossAttention) {
  DenoiseLayout layout;
  layout.text = Layout::replicated({5}, 4);
  layout.mesh = {1, 1, 4};
  const Layout text = layout.conditioning(9, 1, 16);  // any text length is accepted
  EXPECT_EQ(text, Layout::replicated({9, 1, 16}, 4));
}

}  // namespace
}  // namespace reelmesh
