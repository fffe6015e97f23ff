// Spans and counts of the operations' work.
#include "ops/operation.hpp"

#include "support/operation_spans.hpp"

namespace reelmesh::test {
namespace {

TEST(Operation, HasASpanWithItsWork) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const std::vector<KnownOperation> operations = known_operations({}, dtype);
    const TracedOperations traced;
    for (const KnownOperation& operation : operations) operation.run();
    EXPECT_EQ(trace::recorder().spans.size(), operations.size());
    expect_operation_spans(operations);
  }
}

TEST(Operation, IsCountedAtEveryLevel) {
  const std::vector<KnownOperation> operations = known_operations({}, DType::float32);
  const TracedOperations traced;
  trace::recorder().level = trace::Level::layers;
  std::int64_t flops = 0, bytes = 0;
  for (const KnownOperation& operation : operations) {
    operation.run();
    flops += operation.flops;
    bytes += operation.bytes;
  }
  EXPECT_EQ(trace::recorder().flops, flops);
  EXPECT_EQ(trace::recorder().memory_bytes, bytes);
  EXPECT_TRUE(trace::recorder().spans.empty());
}

TEST(Operation, InPartsHasTheFlopsOfTheWhole) {
  const Tensor q = random_tensor({5, 1, 2, 8}, 1), kv = random_tensor({700, 1, 2, 2, 8}, 2);
  const TracedOperations traced;
  ops::attend(q, kv, 1.0F);
  const std::int64_t whole = std::exchange(trace::recorder().flops, 0);
  ops::Attention attention(q, 1.0F);
  attention.add(kv.rows(0, 512));
  attention.add(kv.rows(512, 188));
  attention.finish();
  EXPECT_EQ(trace::recorder().flops, whole);
  // The queries are read for each part.
  EXPECT_EQ(trace::recorder().spans.back().memory_bytes, q.bytes());
  ASSERT_EQ(trace::recorder().spans.size(), 4U);
  EXPECT_EQ(trace::recorder().spans[1].memory_bytes, q.bytes() + kv.rows(0, 512).bytes());
}

}  // namespace
}  // namespace reelmesh::test
