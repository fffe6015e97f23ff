// Relayout of tensors on GPUs: the results have the same bits as on the host.
#include "layout/relayout.hpp"

#include "layout/halo.hpp"
#include "support/gpu_ranks.hpp"
#include "support/numbered.hpp"
#include "support/random_tensor.hpp"
#include "support/spread.hpp"

namespace reelmesh::test {
namespace {

class RelayoutOnGpu : public RanksTest {
 protected:
  // Compares the relayout of x on the device with that on the host.
  void expect_same(const Sharded& x, const Layout& to) const {
    const Sharded moved = relayout({x.local.on(device), x.layout, world}, to);
    EXPECT_EQ(moved.local.device(), device);
    const Tensor expected = relayout(x, to).local;
    EXPECT_TRUE(same_bits(moved.local.on({}), expected))
        << to_string(x.layout) << " to " << to_string(to);
  }
  Sharded own_part(const Tensor& whole, const Layout& layout) const {
    return spread(whole, layout, world);
  }
};
INSTANTIATE_TEST_SUITE_P(By, RelayoutOnGpu, transports, transport_name);

TEST_P(RelayoutOnGpu, EveryPairOfLayouts) {
  const int ranks = world.size();
  const Shape shape{3, 7, 5, 4};
  std::vector<Layout> layouts{Layout::replicated(shape, ranks)};
  for (std::size_t axis = 0; axis < 4; ++axis) layouts.push_back(Layout::cut(shape, axis, ranks));
  layouts.push_back(Layout::on_one_rank(shape, ranks, ranks - 1));
  const std::size_t sources = layouts.size();
  layouts.push_back(Layout::cut(shape, 1, ranks).grown(1, 1));
  const Tensor whole = random_tensor(shape, 1, DType::bfloat16);
  for (std::size_t from = 0; from < sources; ++from) {
    const Sharded x = own_part(whole, layouts[from]);
    for (const Layout& to : layouts) expect_same(x, to);
  }
}

TEST_P(RelayoutOnGpu, RandomUnevenPartitionsOfAnyType) {
  std::mt19937 random(7);  // the same on all ranks
  for (int i = 0; i < 20; ++i) {
    const Shape shape{std::int64_t(random() % 5 + 1), std::int64_t(random() % 9 + 1),
                      std::int64_t(random() % 6 + 1)};
    const DType dtype = std::array{DType::float32, DType::float16}.at(random() % 2);
    const Tensor whole = random_tensor(shape, unsigned(i), dtype);
    const Layout from = random_partition(shape, world.size(), random);
    expect_same(own_part(whole, from), random_partition(shape, world.size(), random));
  }
}

// More than pinned memory or socket buffers hold at once.
TEST_P(RelayoutOnGpu, LargeOnes) {
  const Shape shape{37, 1000, 41};
  const Tensor whole = random_tensor(shape, 3);
  expect_same(own_part(whole, Layout::cut(shape, 0, world.size())),
              Layout::cut(shape, 1, world.size()));
}

TEST_P(RelayoutOnGpu, GoesOnInSmallerAndReorderedGroups) {
  const int ranks = world.size();
  std::vector<int> backwards;
  for (int r = ranks; r-- > 0;) backwards.push_back(r);
  const comm::Group reversed = world.in_order(backwards);
  const comm::Group fewer = reversed.range(0, std::max(1, ranks - 1));
  const Shape shape{11, 6};
  for (const comm::Group& group : {reversed, fewer}) {
    if (!group.member()) continue;
    EXPECT_EQ(group.transport(), GetParam());
    EXPECT_EQ(group.capturable(), group.size() == 1 || GetParam() == Transport::nccl);
    const Layout rows = Layout::cut(shape, 0, group.size());
    const Layout columns = Layout::cut(shape, 1, group.size());
    const Tensor whole = random_tensor(shape, 5);
    const Tensor mine =
        whole.rows(rows.box(group.rank()).offset[0], rows.box(group.rank()).extent[0]);
    const Sharded moved = relayout({mine.on(device), rows, group}, columns);
    EXPECT_TRUE(same_bits(moved.local.on({}), relayout({mine, rows, group}, columns).local));
  }
}

TEST_P(RelayoutOnGpu, PixelsAroundARectangle) {
  std::mt19937 random(1);
  for (int i = 0; i < 8; ++i) {
    const Layout pixels = random_partition(
        {std::int64_t(random() % 9 + 1), std::int64_t(random() % 9 + 1)}, world.size(), random);
    const Layout image = pixels.with_axis(0, 2).with_axis(3, 3);
    const Halo halo(world, image);
    const Tensor mine = numbered(image).local;
    Halo::Pending there = halo.begin(mine.on(device)), here = halo.begin(mine);
    here.finish();
    there.finish();
    ASSERT_EQ(there.image.pieces.size(), here.image.pieces.size());
    for (std::size_t p = 0; p < here.image.pieces.size(); ++p) {
      EXPECT_TRUE(same_bits(there.image.pieces[p].values.on({}), here.image.pieces[p].values));
    }
  }
}

TEST_P(RelayoutOnGpu, ConvolutionsOfCutImages) {
  std::mt19937 random(2);
  for (int i = 0; i < 4; ++i) {
    const DType dtype = i % 2 == 0 ? DType::float32 : DType::bfloat16;
    const std::int64_t rows = random() % 12 + 1, columns = random() % 40 + 1, channels = 3;
    const ops::Convolution convolution(random_tensor({2, channels, 3, 3}, 1, dtype).on(device),
                                       random_tensor({2}, 2).on(device));
    const Tensor whole = random_tensor({1, rows, columns, channels}, unsigned(i), dtype);
    const Layout pixels = random_partition({rows, columns}, world.size(), random);
    const Layout image = pixels.with_axis(0, 1).with_axis(3, channels);
    const Halo halo(world, image);
    Halo::Pending pending = halo.begin(own_part(whole, image).local.on(device));
    const Tensor mine = convolve(convolution, pending, {}, 1);
    const Layout result = pixels.with_axis(0, 1).with_axis(3, 2);
    const Tensor together =
        relayout({mine, result, world}, Layout::replicated(result.global(), world.size())).local;
    const ops::RowWindow all{0, rows, rows};
    EXPECT_TRUE(same_bits(together.on({}), convolution(whole.on(device), all, all).on({})))
        << to_string(pixels);
  }
}

}  // namespace
}  // namespace reelmesh::test
