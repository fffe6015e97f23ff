#include "tensor/device.hpp"

#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::expect_error;

TEST(Device, IsTheHostUnlessToldOtherwise) {
  EXPECT_EQ(to_string(Device{}), "host");
  EXPECT_EQ(to_string(Device{1}), "cuda:1");
  EXPECT_EQ(device_of_rank(Backend::cpu, 3), Device{});
  const Tensor x = Tensor::zeros({2}, DType::float32);
  EXPECT_EQ(x.device(), Device{});
  EXPECT_EQ(x.on({}).raw(), x.raw()) << "no copy";
}

TEST(Device, FallsBackToTheHostOnlyWhereItMay) {
  if (why_no_cuda().empty()) {
    EXPECT_TRUE(device_of_rank(Backend::automatic, 5).is_cuda());
    return;
  }
  EXPECT_EQ(device_of_rank(Backend::automatic, 0), Device{});
  expect_error(
      Status::unavailable, [] { device_of_rank(Backend::cuda, 0); }, "device.backend is cuda, but",
      why_no_cuda());
}

TEST(Device, CudaNamesItsVersionsWhereItIsBuilt) {
  EXPECT_EQ(cuda_versions().empty(), !cuda_built);
  EXPECT_EQ(why_no_cuda() == "this build has no CUDA backend", !cuda_built);
}

TEST(Device, TensorsElsewhereAreAnErrorWithoutTheBackend) {
  if (cuda_built) GTEST_SKIP() << "of builds without CUDA";
  expect_error(
      Status::internal, [] { Tensor::empty({2}, DType::float32, Device{0}); },
      "tensor on cuda:0 in a build without CUDA");
}

TEST(Device, CopiesTakeValuesOfTheSameShapeAndType) {
  const Tensor x = Tensor::of<float>({1, 2, 3, 4}, {2, 2});
  Tensor y = Tensor::zeros({4, 2}, DType::float32);
  y.rows(1, 2).copy_from(x);
  EXPECT_EQ(y.data<float>()[2], 1);
  EXPECT_EQ(y.data<float>()[5], 4);
  EXPECT_EQ(y.data<float>()[6], 0);
  expect_error(
      Status::internal, [&] { y.copy_from(x); }, "[2, 2]", "[4, 2]");
}

}  // namespace
}  // namespace reelmesh
