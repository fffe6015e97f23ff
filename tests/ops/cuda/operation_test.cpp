// Spans of operations on a GPU: measured by its stream, without a wait.
#include "ops/operation.hpp"

#include "base/device_spans.hpp"
#include "support/operation_spans.hpp"
#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

// Counts the waits of another clock.
class CountingClock final : public trace::DeviceClock {
 public:
  explicit CountingClock(std::shared_ptr<DeviceClock> clock) : clock_(std::move(clock)) {}
  void wait() override {
    ++waits;
    clock_->wait();
  }
  std::int64_t compare() override { return clock_->compare(); }
  void stamp() override { clock_->stamp(); }
  std::vector<std::int64_t> read(std::size_t count) override { return clock_->read(count); }
  int waits = 0;

 private:
  std::shared_ptr<DeviceClock> clock_;
};

class OperationOnGpu : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, OperationOnGpu, all_types, type_name);

TEST_P(OperationOnGpu, HasASpanWithItsWorkInItsStage) {
  const std::vector<KnownOperation> operations = known_operations(test_device(), GetParam());
  for (const KnownOperation& operation : operations) operation.run();  // chooses algorithms
  const TracedOperations traced;
  const auto clock = std::make_shared<CountingClock>(device_clock(test_device()));
  trace::recorder().device_spans = std::make_shared<trace::DeviceSpans>(clock);
  {
    const trace::Scope stage(trace::spans::denoise_step);
    for (const KnownOperation& operation : operations) operation.run();
    EXPECT_EQ(clock->waits, 1);  // at the start of the stage
  }
  EXPECT_EQ(clock->waits, 2);
  const std::vector<trace::Span>& spans = trace::recorder().spans;
  ASSERT_EQ(spans.size(), operations.size() + 1);
  expect_operation_spans(operations);
  const trace::Span& stage = spans.back();
  EXPECT_STREQ(stage.name, "denoise_step");
  std::int64_t before = stage.start_ns, flops = 0, bytes = 0;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    EXPECT_GE(spans[i].start_ns, before) << operations[i].name << ", operation " << i;
    before = spans[i].start_ns + spans[i].duration_ns;
    flops += spans[i].flops;
    bytes += spans[i].memory_bytes;
  }
  EXPECT_LE(before, stage.start_ns + stage.duration_ns);
  EXPECT_EQ(stage.flops, flops);
  EXPECT_EQ(stage.memory_bytes, bytes);
}

}  // namespace
}  // namespace reelmesh::test
