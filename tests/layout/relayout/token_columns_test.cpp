#include "layout/token_columns.hpp"

#include <gtest/gtest.h>

#include "support/numbered.hpp"
#include "support/random_tensor.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

using test::random_partition;
using test::random_tensor;
using test::same_bits;

// Columns [first, first + count) of x.
Tensor columns(const Tensor& x, std::int64_t first, std::int64_t count) {
  Tensor out = Tensor::empty({x.shape(0), count}, x.dtype());
  const Box box{{0, first}, {x.shape(0), count}};
  copy_box(box, x, whole_box(x.shape()), out, box);
  return out;
}

// This rank's tokens of `whole` [all tokens, channel], segment after segment.
Tensor own_tokens(const Tensor& whole, const std::vector<Layout>& segments) {
  const std::int64_t channels = whole.shape(1);
  const comm::Group& world = test::world();
  std::int64_t own = 0, row = 0, first = 0;
  for (const Layout& segment : segments) own += own_box(segment, world).numel();
  Tensor out = Tensor::empty({own, channels}, whole.dtype());
  for (const Layout& segment : segments) {
    const Box box = own_box(segment.with_axis(segment.global().size(), channels), world);
    const std::int64_t rows = numel(segment.global()), count = box.numel() / channels;
    Shape shape = segment.global();
    shape.push_back(channels);
    Tensor part = Tensor::empty(box.extent, whole.dtype());
    copy_box(box, whole.rows(first, rows).reshape(shape), whole_box(shape), part, box);
    out.rows(row, count).copy_from(part.reshape({count, channels}));
    first += rows;
    row += count;
  }
  return out;
}

constexpr std::int64_t unit = 3;

void check(const std::vector<Layout>& segments, const std::string& what) {
  const comm::Group& world = test::world();
  const TokenColumns exchange(world, segments, unit);
  std::int64_t all = 0;
  for (const Layout& segment : segments) all += numel(segment.global());
  ASSERT_EQ(exchange.all_tokens(), all);
  // 4 units and 1, of which some ranks have none; twice, since exchanges are kept.
  for (const std::int64_t channels : {12, 3, 12}) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
      const Tensor whole = random_tensor({all, channels}, unsigned(channels), dtype);
      const Tensor own = own_tokens(whole, segments);
      ASSERT_EQ(exchange.own_tokens(), own.shape(0));
      const auto [first, count] = exchange.own_columns(channels);
      const Tensor in_columns = exchange.to_columns(own);
      EXPECT_TRUE(same_bits(in_columns, columns(whole, first, count)))
          << what << ", columns of " << channels << ", " << name_of(dtype);
      EXPECT_TRUE(same_bits(exchange.to_tokens(in_columns, channels), own))
          << what << ", tokens of " << channels << ", " << name_of(dtype);
      EXPECT_TRUE(same_bits(exchange.gather(own), whole))
          << what << ", all of " << channels << ", " << name_of(dtype);
      EXPECT_TRUE(same_bits(exchange.whole(in_columns, channels), whole))
          << what << ", whole of " << channels << ", " << name_of(dtype);
    }
  }
}

TEST(TokenColumns, RanksDivideUnits) {
  const int ranks = test::world().size();
  const TokenColumns exchange(test::world(), {Layout::cut({5}, 0, ranks)}, unit);
  for (const std::int64_t channels : {0, 3, 12, 60}) {
    std::int64_t end = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto [first, count] = exchange.columns(channels, rank);
      EXPECT_EQ(first, end);
      EXPECT_EQ(count % unit, 0);
      const std::int64_t units = count / unit, even = channels / unit / ranks;
      EXPECT_TRUE(units == even || units == even + 1) << units << " units for rank " << rank;
      end = first + count;
    }
    EXPECT_EQ(end, channels);
  }
}

// The last unit may be smaller, and is never divided.
TEST(TokenColumns, RanksDivideAllButTheLastPartOfAUnit) {
  const int ranks = test::world().size();
  const TokenColumns exchange(test::world(), {Layout::cut({5}, 0, ranks)}, unit);
  for (const std::int64_t channels : {1, 4, 13, 59}) {
    std::int64_t end = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto [first, count] = exchange.columns(channels, rank);
      EXPECT_EQ(first, end);
      EXPECT_TRUE(first % unit == 0 || count == 0) << channels;
      end = first + count;
    }
    EXPECT_EQ(end, channels);
  }
}

TEST(TokenColumns, BringTokensOfEveryLayout) {
  const int ranks = test::world().size();
  const Layout text = Layout::cut({11}, 0, ranks);
  const Shape grid{2, 5, 3};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    check({text, Layout::cut(grid, axis, ranks)}, fmt::format("axis {}", axis));
  }
  check({Layout::cut({2}, 0, ranks), Layout::cut(grid, 1, ranks)}, "little text");
  check({Layout::on_one_rank({11}, ranks, ranks - 1), Layout::on_one_rank(grid, ranks, 0)},
        "all text on one rank, all video on another");
  check({Layout::cut(grid, 1, ranks)}, "no text");
}

TEST(TokenColumns, BringTokensOfUnevenPartitions) {
  const int ranks = test::world().size();
  std::mt19937 random(5);  // the same on all ranks
  for (int i = 0; i < 10; ++i) {
    const Shape text{std::int64_t(random() % 12 + 1)};
    const Shape grid{std::int64_t(random() % 4 + 1), std::int64_t(random() % 6 + 1),
                     std::int64_t(random() % 5 + 1)};
    const Layout of_text = random_partition(text, ranks, random);
    check({of_text, random_partition(grid, ranks, random)}, fmt::format("partition {}", i));
  }
}

TEST(TokenColumns, RefuseAnotherNumberOfTokens) {
  const int ranks = test::world().size();
  if (ranks == 1) GTEST_SKIP() << "one rank has all tokens in both layouts";
  const TokenColumns exchange(test::world(), {Layout::cut({8}, 0, ranks)}, unit);
  EXPECT_THROW(exchange.to_columns(random_tensor({exchange.own_tokens() + 1, 3}, 1)), Error);
  EXPECT_THROW(exchange.to_tokens(random_tensor({9, exchange.own_columns(3).count}, 1), 3), Error);
}

}  // namespace
}  // namespace reelmesh
