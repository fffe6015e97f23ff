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

// Otherwise plans, traces and predicted times miss it. Copies of rows and columns are counted where
// tensors have shapes only (copy_elements); the others move nothing, or few values.
TEST_P(OpInParts, IsCountedInDryRuns) {
  if (!GetParam().on_cpu) GTEST_SKIP() << "only on GPUs";
  const std::set<std::string> uncounted{"columns",   "set_columns", "join_rows", "first_part",
                                        "row_range", "as_rows",     "numbers"};
  if (uncounted.contains(GetParam().op)) GTEST_SKIP() << "a view, or a copy of rows or columns";
  Ledger ledger({});
  Arguments arguments;
  Part whole({0, GetParam().size, GetParam().size}, {}, DType::float32, arguments);
  const DryRun run(ledger);
  GetParam().compute(whole);
  EXPECT_FALSE(ledger.operations().empty());
}

}  // namespace
}  // namespace reelmesh::test
