// Spans of operations while the stream is busy, and the events that they take.
#include "ops/operation.hpp"

#include <atomic>

#include "base/device_spans.hpp"
#include "emulated_gpu/device.hpp"
#include "support/operation_spans.hpp"
#include "tensor/cuda/handles.hpp"

namespace reelmesh::emulated {
namespace {

constexpr Device gpu{0};

struct TracedOnGpu : test::TracedOperations {
  TracedOnGpu() {
    trace::recorder().device_spans = std::make_shared<trace::DeviceSpans>(device_clock(gpu));
  }
};

// If one waited, this test would not end.
TEST(OperationSpans, DoNotWaitForABusyStream) {
  const std::vector<test::KnownOperation> operations = test::known_operations(gpu, DType::float32);
  for (const test::KnownOperation& operation : operations) operation.run();
  const TracedOnGpu traced;
  std::atomic<bool> may_go_on = false;
  {
    const trace::Scope stage(trace::spans::denoise_step);
    const auto wait = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); };
    succeed(cudaLaunchHostFunc(cuda::stream(gpu), wait, &may_go_on));
    {
      const trace::Scope block(trace::spans::transformer_block);
      for (const test::KnownOperation& operation : operations) operation.run();
    }
    EXPECT_TRUE(trace::recorder().spans.empty());
    may_go_on = true;
    may_go_on.notify_all();
  }
  ASSERT_EQ(trace::recorder().spans.size(), operations.size() + 2);
  test::expect_operation_spans(operations);
}

TEST(OperationSpans, ReuseTheirEvents) {
  const std::int64_t before = live_events();
  {
    const TracedOnGpu traced;
    std::int64_t after_first = 0;
    for (int i = 0; i < 2; ++i) {
      const trace::Scope stage(trace::spans::encode);
      for (std::size_t k = 0; k < trace::DeviceSpans::max_pending; ++k) {
        const ops::Operation norm(trace::spans::norm, {});
      }
      if (i == 0) after_first = live_events();
    }
    EXPECT_EQ(live_events(), after_first);
    EXPECT_LE(live_events() - before,
              static_cast<std::int64_t>(trace::DeviceSpans::max_pending) + 1);
    EXPECT_EQ(trace::recorder().spans.size(), 2 * trace::DeviceSpans::max_pending + 2);
  }
  EXPECT_EQ(live_events(), before);
}

}  // namespace
}  // namespace reelmesh::emulated
