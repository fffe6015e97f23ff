// The ops on a GPU, in all types: the parts of a result have the bits of the whole.
#include "support/op_table.hpp"
#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

class OpInParts : public OnTestDevice, public testing::WithParamInterface<OpCut> {};
INSTANTIATE_TEST_SUITE_P(Gpu, OpInParts, testing::ValuesIn(op_table(size(0, 1) == 1)), op_name);

TEST_P(OpInParts, HasTheBitsOfTheWhole) {
  if (!GetParam().on_gpu) GTEST_SKIP() << "only on the CPU";
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    expect_bits_of_whole(GetParam(), test_device(), dtype);
  }
}

}  // namespace
}  // namespace reelmesh::test
