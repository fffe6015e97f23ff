// The ops on the CPU, in all types and by all ways of multiplying bfloat16: the parts of a result
// have the bits of the whole, with any number of threads.
#include "support/all_products.hpp"
#include "support/op_table.hpp"

namespace reelmesh::test {
namespace {

class OpInParts : public testing::TestWithParam<OpCut> {};
INSTANTIATE_TEST_SUITE_P(Cpu, OpInParts, testing::ValuesIn(op_table(false)), op_name);

TEST_P(OpInParts, HasTheBitsOfTheWhole) {
  if (!GetParam().on_cpu) GTEST_SKIP() << "only on GPUs";
  for (const DType dtype : {DType::float32, DType::float16}) {
    expect_bits_of_whole(GetParam(), {}, dtype);
  }
  with_all_products([&](std::string_view products) {
    SCOPED_TRACE(products);
    expect_bits_of_whole(GetParam(), {}, DType::bfloat16);
  });
}

}  // namespace
}  // namespace reelmesh::test
