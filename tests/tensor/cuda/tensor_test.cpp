// Tensors on a GPU: copies through pinned memory, counting of memory, dispatch of ops.
#include "ops/pointwise.hpp"
#include "support/expect_error.hpp"
#include "support/test_device.hpp"
#include "tensor/cuda/graph.hpp"

namespace reelmesh::test {
namespace {

class TensorOnGpu : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, TensorOnGpu, all_types, type_name);

TEST_P(TensorOnGpu, ComesBackAsItWent) {
  // The last is more than the pinned memory holds at once, and not a multiple of it.
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{9'000'001}}) {
    const Tensor x = random_tensor({n}, 1, GetParam());
    const Tensor there = x.on(test_device());
    EXPECT_EQ(there.device(), test_device());
    EXPECT_TRUE(same_bits(there.clone().on({}), x));
    const std::int64_t first = n / 3, count = n / 2;
    EXPECT_TRUE(same_bits(there.rows(first, count).on({}), x.rows(first, count)));
  }
}

TEST_P(TensorOnGpu, MemoryIsCounted) {
  const std::int64_t before = device_memory(test_device()).present;
  {
    const Tensor x = Tensor::zeros({1 << 20}, GetParam(), test_device());
    const Tensor same = x.reshape({1 << 10, 1 << 10});
    EXPECT_EQ(device_memory(test_device()).present, before + x.bytes());
  }
  EXPECT_EQ(device_memory(test_device()).present, before);
  EXPECT_GE(device_memory(test_device()).peak, before + (size_of(GetParam()) << 20));
}

TEST_P(TensorOnGpu, TypesAreConverted) {
  const Tensor x = random_tensor({1000}, 1, GetParam());
  for (const DType into : {DType::float32, DType::bfloat16, DType::float16}) {
    EXPECT_TRUE(same_bits(x.on(test_device()).to(into).on({}), x.to(into)));
    EXPECT_TRUE(
        same_bits(x.on(test_device()).rows(1, 998).to(into).on({}), x.rows(1, 998).to(into)));
  }
}

TEST_P(TensorOnGpu, HasNoMemoryForTooMuch) {
  expect_error(
      Status::unavailable,
      [] { Tensor::empty({std::int64_t{1} << 50}, GetParam(), test_device()); },
      "no memory left on cuda:0");
  EXPECT_TRUE(same_bits(there(random_tensor({8}, 1)).on({}), random_tensor({8}, 1)));
}

TEST_P(TensorOnGpu, MayNotOutliveItsGraph) {
  const Tensor x = there(random_tensor({40}, 1, GetParam()));
  Tensor kept;
  expect_error(
      Status::internal,
      [&] { const cuda::Graph graph(test_device(), [&] { kept = ops::silu(x); }); },
      "work of a graph left");
  kept = {};
  Tensor y = Tensor::empty({40}, GetParam(), test_device());
  const cuda::Graph graph(test_device(), [&] { y.copy_from(ops::silu(x)); });
  graph.replay();
  EXPECT_TRUE(same_bits(back(y), back(ops::silu(x))));
}

TEST_P(TensorOnGpu, IsNotReadByTheHost) {
  const Tensor x = Tensor::zeros({4}, GetParam(), test_device());
  expect_error(
      Status::internal, [&] { x.raw(); }, "on cuda:0 used on host");
}

TEST_P(TensorOnGpu, OpsGoWhereTheTensorIs) {
  const Tensor x = random_tensor({3, 40}, 1, GetParam());
  const Tensor y = ops::silu(x.on(test_device()));
  EXPECT_EQ(y.device(), test_device());
  EXPECT_TRUE(same_bits(y.on({}), ops::silu(x)));
}

}  // namespace
}  // namespace reelmesh::test
