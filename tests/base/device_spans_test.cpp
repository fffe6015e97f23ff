#include "base/device_spans.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace reelmesh::trace {
namespace {

// A device that takes 10 ns for each piece of work, and does it when it is waited for.
class FakeClock final : public DeviceClock {
 public:
  void wait() override {
    check("wait");
    ++waits;
  }
  std::int64_t compare() override {
    EXPECT_TRUE(pending.empty());
    ++comparisons;
    return time;
  }
  void stamp() override {
    check("stamp");
    pending.push_back(time);
  }
  std::vector<std::int64_t> read(std::size_t count) override {
    EXPECT_LE(count, pending.size());
    const auto end = pending.begin() + static_cast<std::ptrdiff_t>(count);
    std::vector<std::int64_t> times(pending.begin(), end);
    pending.erase(pending.begin(), end);
    return times;
  }
  void work() { time += 10; }

  std::int64_t time = 1000;
  int waits = 0, comparisons = 0;
  std::deque<std::int64_t> pending;
  std::string fails;  // the function that throws

 private:
  void check(const std::string& function) const {
    if (function == fails) throw std::runtime_error(function + " failed");
  }
};

class DeviceSpansTest : public testing::Test {
 protected:
  void SetUp() override {
    recorder() = Recorder();
    recorder().level = Level::ops;
    recorder().device_spans = std::make_shared<DeviceSpans>(clock);
  }
  void TearDown() override { recorder() = Recorder(); }

  static std::vector<std::string> names() {
    std::vector<std::string> result;
    for (const Span& span : recorder().spans) result.emplace_back(span.name);
    return result;
  }

  std::shared_ptr<FakeClock> clock = std::make_shared<FakeClock>();
};

TEST_F(DeviceSpansTest, AreMeasuredByTheDeviceWithoutAWait) {
  {
    const Scope stage(spans::denoise_step);
    EXPECT_EQ(clock->waits, 1);
    {
      const Mark layer(&Recorder::layer, 7);
      const Scope block(spans::transformer_block);
      {
        const Scope product(spans::product);
        recorder().flops += 5;
        recorder().memory_bytes += 6;
        clock->work();
      }
      clock->work();
    }
    EXPECT_EQ(clock->waits, 1);
    EXPECT_TRUE(recorder().spans.empty());
  }
  EXPECT_EQ(clock->waits, 2);
  EXPECT_EQ(clock->comparisons, 2);
  ASSERT_EQ(names(), (std::vector<std::string>{"product", "transformer_block", "denoise_step"}));
  const Span &product = recorder().spans[0], &block = recorder().spans[1];
  EXPECT_EQ(product.start_ns, 1000);
  EXPECT_EQ(product.duration_ns, 10);
  EXPECT_EQ(product.flops, 5);
  EXPECT_EQ(product.memory_bytes, 6);
  EXPECT_EQ(product.layer, 7);
  EXPECT_EQ(block.start_ns, 1000);
  EXPECT_EQ(block.duration_ns, 20);
  EXPECT_EQ(block.flops, 5);
}

TEST_F(DeviceSpansTest, OfStagesOnlyAreMeasuredByTheHost) {
  recorder().level = Level::stages;
  {
    const Scope stage(spans::denoise_step);
    const Scope product(spans::product);
  }
  EXPECT_EQ(names(), std::vector<std::string>{"denoise_step"});
  EXPECT_EQ(clock->waits, 2);
  EXPECT_EQ(clock->comparisons, 0);
}

TEST_F(DeviceSpansTest, OutsideAStageAreThereAfterSettling) {
  { const Scope product(spans::product); }
  EXPECT_EQ(clock->comparisons, 1);  // before the first timestamp
  EXPECT_TRUE(recorder().spans.empty());
  recorder().device_spans->settle();
  EXPECT_EQ(names(), std::vector<std::string>{"product"});
}

TEST_F(DeviceSpansTest, TakeBoundedMemoryWithinAStage) {
  constexpr int count = 3 * DeviceSpans::max_pending;
  {
    const Scope stage(spans::encode);
    const Scope all(spans::t5_layer);  // its start is read before its end is there
    for (int i = 0; i < count; ++i) {
      const Scope product(spans::product);
      clock->work();
      EXPECT_LE(clock->pending.size(), DeviceSpans::max_pending);
    }
    EXPECT_EQ(clock->waits, 1);
    EXPECT_GT(recorder().spans.size(), std::size_t{count} / 2);
  }
  ASSERT_EQ(recorder().spans.size(), std::size_t{count} + 2);
  for (int i = 0; i < count; ++i) {
    const Span& span = recorder().spans[static_cast<std::size_t>(i)];
    ASSERT_EQ(span.start_ns, 1000 + 10 * i);
    ASSERT_EQ(span.duration_ns, 10);
  }
  const Span& all = recorder().spans[count];
  EXPECT_STREQ(all.name, "t5_layer");
  EXPECT_EQ(all.start_ns, 1000);
  EXPECT_EQ(all.duration_ns, 10 * count);
}

TEST_F(DeviceSpansTest, ErrorOfAnEndIsThrownOnceByTheNextSpan) {
  {
    const Scope first(spans::product);
    clock->fails = "stamp";
  }
  clock->fails = "";
  EXPECT_THROW(Scope(spans::product), std::runtime_error);
  { const Scope third(spans::norm); }
  recorder().device_spans->settle();
  EXPECT_EQ(names(), std::vector<std::string>{"norm"});
}

TEST_F(DeviceSpansTest, ErrorAtTheEndOfAStageIsThrownByTheNextSettling) {
  {
    const Scope stage(spans::decode);
    clock->fails = "wait";
  }
  EXPECT_EQ(names(), std::vector<std::string>{"decode"});
  clock->fails = "";
  EXPECT_THROW(recorder().device_spans->settle(), std::runtime_error);
  recorder().device_spans->settle();
}

TEST_F(DeviceSpansTest, ErrorAtAStartLeavesTheStageAsItWas) {
  recorder().stage = "before";
  clock->fails = "wait";
  EXPECT_THROW(Scope(spans::decode), std::runtime_error);
  EXPECT_STREQ(recorder().stage, "before");
  EXPECT_TRUE(recorder().spans.empty());
}

}  // namespace
}  // namespace reelmesh::trace
