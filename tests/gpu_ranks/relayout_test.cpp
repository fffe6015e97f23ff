// Tensors on a device between ranks, which may share one GPU.
#include "layout/relayout.hpp"

#include <gtest/gtest.h>

#include "support/random_tensor.hpp"
#include "tensor/device.hpp"

namespace reelmesh {
namespace {

TEST(RelayoutOnGpu, GivesWhatTheHostGives) {
  const comm::Group world = comm::Group::world();
  Device device;
  try {
    device = device_of_rank(Backend::cuda, world.on_this_host().rank());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const Shape shape{7, 5, 24};
  const Layout rows = Layout::cut(shape, 0, world.size());
  const Tensor all = test::random_tensor(shape, 1, DType::bfloat16);
  const Box mine = rows.box(world.rank());
  const Tensor part = all.rows(mine.offset[0], mine.extent[0]);
  for (std::size_t axis = 1; axis < 3; ++axis) {
    const Layout other = Layout::cut(shape, axis, world.size());
    const Sharded on_host = relayout({part, rows, world}, other);
    const Sharded moved = relayout({part.on(device), rows, world}, other);
    EXPECT_EQ(moved.local.device(), device);
    EXPECT_TRUE(test::same_bits(moved.local.on({}), on_host.local)) << "axis " << axis;
    const Sharded again = relayout(moved, rows);
    EXPECT_TRUE(test::same_bits(again.local.on({}), part.clone())) << "axis " << axis;
  }
}

}  // namespace
}  // namespace reelmesh
