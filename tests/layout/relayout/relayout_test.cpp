#include "layout/relayout.hpp"

#include <gtest/gtest.h>

#include "support/numbered.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::numbered;
using reelmesh::test::random_partition;

void expect_numbered(const Sharded& x) {
  const Sharded expected = numbered(x.layout);
  ASSERT_EQ(x.local.shape(), expected.local.shape());
  for (std::int64_t i = 0; i < x.local.numel(); ++i) {
    ASSERT_EQ(x.local.data<float>()[i], expected.local.data<float>()[i])
        << "element " << i << " of box " << to_string(x.box());
  }
}

TEST(Relayout, EveryPairOfLayouts) {
  const int ranks = test::world().size();
  const Shape shape{3, 7, 5, 4};
  std::vector<Layout> layouts{Layout::replicated(shape, ranks)};
  for (std::size_t axis = 0; axis < 4; ++axis) layouts.push_back(Layout::cut(shape, axis, ranks));
  for (int r = 0; r < ranks; ++r) layouts.push_back(Layout::on_one_rank(shape, ranks, r));
  if (ranks % 2 == 0) layouts.push_back(Layout::grid(shape, {2, ranks / 2, 1, 1}));
  const std::size_t sources = layouts.size();
  layouts.push_back(Layout::cut(shape, 1, ranks).grown(1, 1));
  layouts.push_back(Layout::cut(shape, 1, ranks).grown(1, 3));
  for (std::size_t from = 0; from < sources; ++from) {
    for (const Layout& to : layouts) expect_numbered(relayout(numbered(layouts[from]), to));
  }
}

TEST(Relayout, RandomUnevenPartitions) {
  const int ranks = test::world().size();
  std::mt19937 random(7);  // the same on all ranks
  for (int i = 0; i < 50; ++i) {
    const Shape shape{std::int64_t(random() % 5 + 1), std::int64_t(random() % 9 + 1),
                      std::int64_t(random() % 6 + 1)};
    const Layout from = random_partition(shape, ranks, random);
    expect_numbered(relayout(numbered(from), random_partition(shape, ranks, random)));
  }
}

TEST(Exchange, SeveralMovesTravelTogetherAndAreCounted) {
  const auto world = test::world();
  const int ranks = world.size();
  const Layout text = Layout::cut({11, 6}, 0, ranks), text_heads = Layout::cut({11, 6}, 1, ranks);
  const Layout video = Layout::cut({3, 4, 6}, 1, ranks);
  const Layout video_heads = Layout::cut({3, 4, 6}, 2, ranks);
  const Exchange exchange(world, {{text, text_heads}, {video, video_heads}});
  std::vector<Tensor> moved{Tensor::empty(text_heads.box(world.rank()).extent, DType::float32),
                            Tensor::empty(video_heads.box(world.rank()).extent, DType::float32)};
  exchange.run({numbered(text).local, numbered(video).local}, moved);
  expect_numbered({moved[0], text_heads, world});
  expect_numbered({moved[1], video_heads, world});
  // A rank sends what it holds of the heads that other ranks get.
  const Box &t = text.box(world.rank()), &v = video.box(world.rank());
  const std::int64_t heads = text_heads.box(world.rank()).extent[1];
  EXPECT_EQ(exchange.sent_elements(),
            t.extent[0] * (6 - heads) + v.extent[0] * v.extent[1] * (6 - heads));
}

TEST(Exchange, BetweenEqualLayoutsSendsNothing) {
  const auto world = test::world();
  const Layout layout = Layout::cut({5, 6}, 0, world.size());
  EXPECT_EQ(Exchange(world, {{layout, layout}}).sent_elements(), 0);
  EXPECT_EQ(Exchange(world, {{Layout::replicated({5, 6}, world.size()), layout}}).sent_elements(),
            0);
}

}  // namespace
}  // namespace reelmesh
