// Adjoint test of each linear communication operator A (relayout, halo, sum): <A x, y> = <x, Aᵀ y>,
// dot products over all ranks. Values are small integers, so that both sides are exact.
#include "layout/halo.hpp"
#include "support/numbered.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::random_partition;

Tensor whole_numbers(const Shape& shape, std::mt19937& random) {
  Tensor x = Tensor::empty(shape, DType::float32);
  for (float& value : x.span<float>()) value = static_cast<float>(random() % 9) - 4.0F;
  return x;
}

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    sum += double(a.data<float>()[i]) * b.data<float>()[i];
  }
  return test::world().sum(sum);
}

void expect_adjoint(const Layout& from, const Layout& to, std::mt19937& values) {
  const auto world = test::world();
  const Exchange exchange(world, {{from, to}});
  const Tensor x = whole_numbers(from.box(world.rank()).extent, values);
  const Tensor y = whole_numbers(to.box(world.rank()).extent, values);
  Tensor moved = Tensor::empty(y.shape(), DType::float32);
  Tensor back = Tensor::zeros(x.shape(), DType::float32);
  exchange.run({x}, {&moved, 1});
  exchange.add_back({y}, {&back, 1});
  EXPECT_EQ(dot(moved, y), dot(x, back)) << to_string(from) << " to " << to_string(to);
}

TEST(Adjoint, OfRelayoutGatherAndOverlap) {
  const auto world = test::world();
  std::mt19937 random(3), values(unsigned(world.rank()) + 1);
  for (int i = 0; i < 20; ++i) {
    const Shape shape{std::int64_t(random() % 5 + 1), std::int64_t(random() % 9 + 1),
                      std::int64_t(random() % 6 + 1)};
    const Layout from = random_partition(shape, world.size(), random);
    expect_adjoint(from, random_partition(shape, world.size(), random), values);
    expect_adjoint(from, Layout::replicated(shape, world.size()), values);
    expect_adjoint(from, Layout::on_one_rank(shape, world.size(), i % world.size()), values);
    expect_adjoint(from, random_partition(shape, world.size(), random).grown(1, 2), values);
  }
}

TEST(Adjoint, OfSeveralMovesTogether) {
  const auto world = test::world();
  std::mt19937 values(unsigned(world.rank()) + 1);
  const Layout a = Layout::cut({4, 6}, 0, world.size()), b = Layout::cut({4, 6}, 1, world.size());
  const Exchange exchange(world, {{a, b}, {b, a}});
  const auto in = [&](const Layout& layout) {
    return whole_numbers(layout.box(world.rank()).extent, values);
  };
  const std::vector<Tensor> x{in(a), in(b)}, y{in(b), in(a)};
  std::vector<Tensor> moved{in(b), in(a)};
  std::vector<Tensor> back{Tensor::zeros(x[0].shape(), DType::float32),
                           Tensor::zeros(x[1].shape(), DType::float32)};
  exchange.run(x, moved);
  exchange.add_back(y, back);
  EXPECT_EQ(dot(moved[0], y[0]) + dot(moved[1], y[1]), dot(x[0], back[0]) + dot(x[1], back[1]));
}

TEST(Adjoint, OfHalo) {
  const auto world = test::world();
  std::mt19937 random(5), values(unsigned(world.rank()) + 1);
  for (int i = 0; i < 20; ++i) {
    const Layout pixels = random_partition(
        {std::int64_t(random() % 8 + 1), std::int64_t(random() % 8 + 1)}, world.size(), random);
    const Halo halo(world, pixels.with_axis(0, 2).with_axis(3, 3));
    Shape shape = pixels.box(world.rank()).extent;
    shape.insert(shape.begin(), 2);
    shape.push_back(3);
    const Tensor x = whole_numbers(shape, values);
    Halo::Pending pending = halo.begin(x);
    pending.finish();
    std::vector<Tensor> y;
    double left = 0;
    std::size_t piece = 1;
    for (const Box& box : halo.strips()) {
      y.push_back(whole_numbers(box.extent, values));
      const Tensor empty = Tensor::zeros({0}, DType::float32);
      left += dot(box.empty() ? empty : pending.image.pieces[piece++].values, y.back());
    }
    Tensor back = Tensor::zeros(shape, DType::float32);
    halo.add_back(y, back);
    EXPECT_EQ(left, dot(x, back)) << to_string(pixels);
  }
}

// A sum over ranks whose result all ranks get (all-reduce) is its own adjoint.
TEST(Adjoint, OfSums) {
  const auto world = test::world();
  std::mt19937 values(unsigned(world.rank()) + 1);
  const Tensor x = whole_numbers({7}, values), y = whole_numbers({7}, values);
  const auto summed = [&](const Tensor& terms) {
    std::vector<ops::ExactSum> sums(7);
    for (std::size_t i = 0; i < 7; ++i) sums[i].add(terms.data<float>()[i]);
    add_up(world, sums);
    Tensor result = Tensor::empty({7}, DType::float32);
    for (std::size_t i = 0; i < 7; ++i) result.data<float>()[i] = float(sums[i].value());
    return result;
  };
  EXPECT_EQ(dot(summed(x), y), dot(x, summed(y)));
}

}  // namespace
}  // namespace reelmesh
