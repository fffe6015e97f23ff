#include "layout/halo.hpp"

#include "ops/norm.hpp"
#include "support/numbered.hpp"
#include "support/random_tensor.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::numbered;
using reelmesh::test::random_partition;
using reelmesh::test::random_tensor;
using reelmesh::test::same_bits;

Layout image_layout(const Layout& pixels, std::int64_t frames, std::int64_t channels) {
  return pixels.with_axis(0, frames).with_axis(3, channels);
}

TEST(Halo, BringsThePixelsAroundEveryRectangle) {
  const auto world = test::world();
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    const Layout pixels = random_partition(
        {std::int64_t(random() % 9 + 1), std::int64_t(random() % 9 + 1)}, world.size(), random);
    const Layout image = image_layout(pixels, 2, 3);
    const Halo halo(world, image);
    Halo::Pending pending = halo.begin(numbered(image).local);
    pending.finish();
    const Sharded around = numbered(image.grown(1, 1).grown(2, 1));
    std::int64_t found = 0;
    for (const auto& [box, values] : pending.image.pieces) {
      const Box target{{0, box.row, box.column, 0}, {2, box.rows, box.columns, 3}};
      Tensor expected = Tensor::empty(target.extent, DType::float32);
      copy_box(target, around.local, around.box(), expected, target);
      EXPECT_TRUE(same_bits(values, expected)) << to_string(target) << " of " << to_string(pixels);
      found += values.numel();
    }
    EXPECT_EQ(found, around.box().numel()) << to_string(pixels);
  }
}

// Random shapes and cuts, some parts empty: convolving the parts gives the bits of convolving the
// whole image.
TEST(Convolve, HasTheBitsOfOneRankHoweverTheImageIsCut) {
  const auto world = test::world();
  std::mt19937 random(2);
  for (int i = 0; i < 12; ++i) {
    const DType dtype = i % 2 == 0 ? DType::float32 : DType::bfloat16;
    const std::int64_t rows = random() % 20 + 1, columns = random() % 80 + 1, channels = 5;
    const std::int64_t enlarged = i % 3 == 0 ? 2 : 1;
    const ops::Convolution convolution(enlarged == 2
                                           ? random_tensor({4, channels, 3, 3}, 1, dtype)
                                           : random_tensor({4, channels, 3, 3, 3}, 1, dtype),
                                       random_tensor({4}, 2));
    const Tensor whole = random_tensor({2, rows, columns, channels}, unsigned(i), dtype);
    const Layout all = Layout::replicated(whole.shape(), world.size());
    const Layout pixels = random_partition({rows, columns}, world.size(), random);
    const Layout image = image_layout(pixels, 2, channels);
    const Halo halo(world, image);
    Halo::Pending pending = halo.begin(relayout({whole, all, world}, image).local);
    const Tensor mine = convolve(convolution, pending, {}, enlarged);
    const Layout result = image_layout(pixels, 2, 4).scaled(1, enlarged).scaled(2, enlarged);
    const Tensor together =
        relayout({mine, result, world}, Layout::replicated(result.global(), world.size())).local;
    const ops::RowWindow have{0, rows, rows}, want{0, rows * enlarged, rows * enlarged};
    EXPECT_TRUE(same_bits(together, convolution(whole, have, want))) << to_string(pixels);
  }
}

TEST(Halo, IsAsWideAsTheWindowNeeds) {
  const auto world = test::world();
  std::mt19937 random(4);
  for (const ops::Window& window : {ops::Window{3, 2, 0, 1}, ops::Window{5, 2, 1, 2}}) {
    for (int i = 0; i < 8; ++i) {
      const Layout cells = random_partition(
          {std::int64_t(random() % 9 + 1), std::int64_t(random() % 9 + 1)}, world.size(), random);
      const Layout image = image_layout(cells.scaled(0, 2).scaled(1, 2), 2, 3);
      const Halo halo(world, image, window);
      Halo::Pending pending = halo.begin(numbered(image).local);
      pending.finish();
      const Sharded around = numbered(image.grown(1, window.before, window.halo_after())
                                          .grown(2, window.before, window.halo_after()));
      std::int64_t found = 0;
      for (const auto& [box, values] : pending.image.pieces) {
        const Box target{{0, box.row, box.column, 0}, {2, box.rows, box.columns, 3}};
        Tensor expected = Tensor::empty(target.extent, DType::float32);
        copy_box(target, around.local, around.box(), expected, target);
        EXPECT_TRUE(same_bits(values, expected)) << to_string(target) << " of " << to_string(cells);
        found += values.numel();
      }
      EXPECT_EQ(found, around.box().numel()) << to_string(cells);
    }
  }
}

TEST(Convolve, OfStrideTwoHasTheBitsOfOneRankHoweverTheImageIsCut) {
  const auto world = test::world();
  std::mt19937 random(5);
  for (int i = 0; i < 12; ++i) {
    const DType dtype = i % 2 == 0 ? DType::float32 : DType::bfloat16;
    const ops::Window window = i % 3 == 0 ? ops::Window{5, 2, 1, 2} : ops::Window{3, 2, 0, 1};
    const std::int64_t rows = random() % 12 + 2, columns = random() % 50 + 2, channels = 5;
    const ops::Convolution convolution(
        random_tensor({4, channels, window.kernel, window.kernel}, 1, dtype), random_tensor({4}, 2),
        {}, window);
    const Tensor whole = random_tensor({2, 2 * rows, 2 * columns, channels}, unsigned(i), dtype);
    const Layout all = Layout::replicated(whole.shape(), world.size());
    const Layout cells = random_partition({rows, columns}, world.size(), random);
    const Layout image = image_layout(cells.scaled(0, 2).scaled(1, 2), 2, channels);
    const Halo halo(world, image, window);
    Halo::Pending pending = halo.begin(relayout({whole, all, world}, image).local);
    const Tensor mine = convolve(convolution, pending, {});
    const Layout result = image_layout(cells, 2, 4);
    const Tensor together =
        relayout({mine, result, world}, Layout::replicated(result.global(), world.size())).local;
    EXPECT_TRUE(same_bits(together, convolution(whole, {0, 2 * rows, 2 * rows}, {0, rows, rows})))
        << to_string(cells);
  }
}

TEST(Sums, OverCutImagesAreThoseOfTheWhole) {
  const auto world = test::world();
  std::mt19937 random(3);
  for (int i = 0; i < 12; ++i) {
    const std::int64_t cell = i % 3 + 1;
    const Layout cells = random_partition(
        {std::int64_t(random() % 9 + 1), std::int64_t(random() % 9 + 1)}, world.size(), random);
    const Layout image = image_layout(cells.scaled(0, cell).scaled(1, cell), 2, 8);
    const Tensor whole = random_tensor(image.global(), unsigned(i));
    const Layout all = Layout::replicated(whole.shape(), world.size());
    auto sums = ops::group_sums(relayout({whole, all, world}, image).local, 4, cell);
    add_up(world, sums);
    const auto expected = ops::group_sums(whole, 4, cell);
    for (std::size_t g = 0; g < 8; ++g) {
      EXPECT_EQ(sums[g].value(), expected[g].value()) << to_string(cells);
    }
  }
}

}  // namespace
}  // namespace reelmesh
