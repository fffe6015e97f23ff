#include "tensor/tensor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <concepts>
#include <cstdint>

#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

using test::expect_error;
using testing::Each;
using testing::ElementsAre;

Tensor count_up() { return Tensor::of<float>({0, 1, 2, 3, 4, 5}, {3, 2}); }

TEST(Tensor, DefaultHasNoElements) {
  const Tensor t;
  EXPECT_TRUE(t.empty());
  EXPECT_EQ(t.shape(), Shape{0});
  EXPECT_EQ(t.bytes(), 0);
}

TEST(Tensor, MemoryIsAligned) {
  for (std::int64_t n : {1, 3, 17, 1000}) {
    const Tensor t = Tensor::empty({n}, DType::bfloat16);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.raw()) % 64, 0U);
    EXPECT_EQ(t.bytes(), 2 * n);
  }
}

TEST(Tensor, ScalarsAndEmptyExtents) {
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(numel({4, 0, 3}), 0);
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(to_string(Shape{}), "[]");
  const Tensor t = Tensor::zeros({4, 0, 3}, DType::float32);
  EXPECT_TRUE(t.empty());
  EXPECT_EQ(t.clone().shape(), (Shape{4, 0, 3}));
}

TEST(Tensor, RefusesImpossibleShapes) {
  expect_error(Status::data, [] { Tensor::empty({-1}, DType::float32); });
  expect_error(Status::data, [] { Tensor::empty({1 << 30, 1 << 30, 1 << 30}, DType::uint8); });
  expect_error(Status::data, [] { Tensor::empty({std::int64_t{1} << 62}, DType::float32); });
}

TEST(Tensor, ZerosAreZero) {
  EXPECT_THAT(Tensor::zeros({5, 7}, DType::float32).span<float>(), Each(0.0F));
}

template <class T>
concept GivesWriteAccess = requires(T& tensor) {
  { tensor.raw() } -> std::same_as<void*>;
  { tensor.template data<float>() } -> std::same_as<float*>;
  tensor.copy_from(tensor);
};
static_assert(GivesWriteAccess<Tensor> && !GivesWriteAccess<const Tensor>);

TEST(Tensor, RowsShareMemory) {
  const Tensor t = count_up();
  Tensor middle = t.rows(1, 2);
  EXPECT_EQ(middle.shape(), (Shape{2, 2}));
  EXPECT_THAT(middle.span<float>(), ElementsAre(2, 3, 4, 5));
  middle.data<float>()[0] = 9;
  EXPECT_EQ(t.data<float>()[2], 9);
  EXPECT_TRUE(t.rows(3, 0).empty());
  expect_error(Status::internal, [&] { t.rows(2, 2); });
  expect_error(Status::internal, [&] { t.rows(-1, 1); });
}

TEST(Tensor, RowsOutliveTheWhole) {
  Tensor last;
  { last = count_up().rows(2, 1); }
  EXPECT_THAT(last.span<float>(), ElementsAre(4, 5));
}

TEST(Tensor, ReshapeKeepsTheElements) {
  EXPECT_THAT(count_up().reshape({2, 3}).rows(1, 1).span<float>(), ElementsAre(3, 4, 5));
  expect_error(
      Status::internal, [] { count_up().reshape({4}); }, "[3, 2]", "[4]");
}

TEST(Tensor, CloneOwnsItsMemory) {
  Tensor t = count_up();
  const Tensor copy = t.clone();
  t.data<float>()[0] = 9;
  EXPECT_THAT(copy.span<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Tensor, ConvertsBetweenFloatingTypes) {
  const Tensor t = Tensor::of<float>({1.0F, -2.5F, 1.00390625F, 65536.0F}, {4});
  EXPECT_THAT(t.to(DType::bfloat16).to(DType::float32).span<float>(),
              ElementsAre(1.0F, -2.5F, 1.0F, 65536.0F));
  const Tensor half = t.to(DType::float16);
  EXPECT_EQ(half.data<Float16>()[2].bits, 0x3c04);
  EXPECT_EQ(half.data<Float16>()[3].bits, 0x7c00);
  EXPECT_EQ(half.to(DType::bfloat16).data<BFloat16>()[1].bits, 0xc020);
  EXPECT_EQ(t.to(DType::float32).raw(), t.raw()) << "the same type is the same memory";
  expect_error(Status::internal, [&] { t.to(DType::int32); });
}

TEST(Tensor, ReadAsAnotherTypeIsRefused) {
  expect_error(
      Status::internal, [] { count_up().data<BFloat16>(); }, "float32", "bfloat16");
}

TEST(Tensor, WrapKeepsTheOwnerAlive) {
  auto memory = std::make_shared<float>(3.0F);
  const std::weak_ptr<float> watch = memory;
  {
    const Tensor t = Tensor::wrap(memory.get(), {1}, DType::float32, memory);
    memory.reset();
    EXPECT_FALSE(watch.expired());
    EXPECT_EQ(t.data<float>()[0], 3.0F);
  }
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace reelmesh
