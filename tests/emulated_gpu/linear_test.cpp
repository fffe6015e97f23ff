// gpu::linear pads rows if its cuBLASLt algorithm does not support their number. The real library
// cannot be made to refuse, so this is tested with the emulated one.
#include "ops/linear.hpp"

#include "base/trace.hpp"
#include "emulated_gpu/device.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::emulated {
namespace {

bool rows_are_padded() {
  const Device device{0};
  const Tensor w = test::random_tensor({24, 40}, 1), x = test::random_tensor({4101, 40}, 2);
  const ops::Linear linear(w.on(device));
  const Tensor all = linear(x.on(device).rows(0, 4096)).on({});  // supported, not padded
  const Tensor padded = linear(x.on(device)).on({});
  const Tensor few = linear(x.on(device).rows(4090, 11)).on({});
  return trace::recorder().padded_products == 2 &&
         test::same_bits(padded.rows(0, 4096).clone(), all) &&
         test::same_bits(padded.rows(4090, 11).clone(), few) &&
         test::relative_error(padded, ops::Linear(w)(x)) < 1e-5;
}

TEST(LinearOnEmulatedGpu, PadsRowsThatAnAlgorithmDoesNotTake) {
  EXPECT_WITH_SETTING("REELMESH_EMULATED_GPU_ROWS", "4096", rows_are_padded());
}

}  // namespace
}  // namespace reelmesh::emulated
