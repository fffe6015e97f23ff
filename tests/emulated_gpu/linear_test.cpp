// gpu::linear pads rows if its cuBLASLt algorithm does not support their number, or gives them
// other bits. The real library cannot be made to do so, so this is tested with the emulated one.
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

// Few rows have the bits that they have among many, also if cuBLASLt's algorithm gives them others.
bool few_rows_have_the_bits_of_many() {
  const Device device{0};
  const Tensor w = test::random_tensor({24, 72}, 1), x = test::random_tensor({1500, 72}, 2);
  const ops::Linear linear(w.on(device));
  const Tensor on_device = x.on(device);
  const Tensor many = linear(on_device).on({});
  const bool none = trace::recorder().padded_products == 0;
  bool same = true;
  for (const std::int64_t rows : {1, 7, 300, 1023}) {
    same = same &&
           test::same_bits(linear(on_device.rows(20, rows)).on({}), many.rows(20, rows).clone());
  }
  return none && same && trace::recorder().padded_products == 4;
}

TEST(LinearOnEmulatedGpu, PadsRowsThatWouldHaveOtherBits) {
  EXPECT_WITH_SETTING("REELMESH_EMULATED_CUBLASLT_FEW", "1024", few_rows_have_the_bits_of_many());
}

// The same if it is the large calls that differ.
bool many_rows_have_the_bits_of_fewer() {
  const Device device{0};
  const Tensor w = test::random_tensor({24, 72}, 1), x = test::random_tensor({2100, 72}, 2);
  const ops::Linear linear(w.on(device));
  const Tensor on_device = x.on(device);
  const Tensor many = linear(on_device).on({}), few = linear(on_device.rows(20, 1024)).on({});
  return test::same_bits(few, many.rows(20, 1024).clone()) &&
         trace::recorder().padded_products == 1;
}

TEST(LinearOnEmulatedGpu, CutsRowsThatWouldHaveOtherBits) {
  EXPECT_WITH_SETTING("REELMESH_EMULATED_CUBLASLT_FEW", "1025", many_rows_have_the_bits_of_fewer());
}

}  // namespace
}  // namespace reelmesh::emulated
