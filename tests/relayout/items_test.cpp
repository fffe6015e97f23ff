#include "layout/items.hpp"

#include <gtest/gtest.h>

namespace reelmesh {
namespace {

// Two items, so that with three or more ranks some share one and some do not.
TEST(Items, RanksOfOneItemAddUpAmongThemselves) {
  const auto world = comm::Group::world();
  const Layout layout = item_layout({2, 6, 3}, 1, world.size()).with_axis(3, 4);
  const Layout pixels = pixels_of_own_items(layout, world);
  const Box& mine = own_box(layout, world);
  std::vector<ops::ExactSum> sums(2);
  sums[0].add(double(mine.numel()));
  sums[1].add(0.125);
  add_up(world, pixels, sums);
  if (mine.empty()) {
    EXPECT_EQ(sums[1].value(), 0.125) << "a rank without items adds nothing";
    return;
  }
  std::int64_t pixels_held = 0, sharers = 0;
  for (int r = 0; r < world.size(); ++r) {
    pixels_held += pixels.box(r).numel();
    sharers += pixels.box(r).empty() ? 0 : 1;
  }
  EXPECT_EQ(pixels_held, 6 * 3) << "those who share an item have all of its pixels";
  EXPECT_EQ(sums[0].value(), double(pixels_held * mine.extent[0] * 4));
  EXPECT_EQ(sums[1].value(), 0.125 * double(sharers));
}

}  // namespace
}  // namespace reelmesh
