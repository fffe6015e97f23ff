#include "base/trace.hpp"

#include <gtest/gtest.h>

namespace reelmesh::trace {
namespace {

/// Resets the recorder before and after every test.
class Trace : public testing::Test {
 protected:
  void SetUp() override { recorder() = Recorder(); }
  void TearDown() override { recorder() = Recorder(); }
};

TEST_F(Trace, RecordsTimeBytesAndFlopsOfAScope) {
  recorder().bytes_sent = 100;
  {
    const Mark clip(&Recorder::clip, 3);
    const Mark step(&Recorder::step, 5);
    const Scope scope(spans::denoise_step);
    recorder().bytes_sent += 24;
    recorder().flops += 7;
    recorder().memory_bytes += 9;
  }
  ASSERT_EQ(recorder().spans.size(), 1U);
  const Span& span = recorder().spans[0];
  EXPECT_STREQ(span.name, "denoise_step");
  EXPECT_EQ(span.clip, 3);
  EXPECT_EQ(span.step, 5);
  EXPECT_EQ(span.layer, -1);
  EXPECT_EQ(span.bytes, 24);
  EXPECT_EQ(span.flops, 7);
  EXPECT_EQ(span.memory_bytes, 9);
  EXPECT_GE(span.duration_ns, 0);
  EXPECT_EQ(recorder().clip, -1);
}

TEST_F(Trace, SkipsScopesFinerThanTheLevel) {
  {
    const Scope layer(spans::t5_layer);
    const Scope stage(spans::encode);
  }
  recorder().level = Level::off;
  { const Scope stage(spans::decode); }
  ASSERT_EQ(recorder().spans.size(), 1U);
  EXPECT_STREQ(recorder().spans[0].name, "encode");
}

TEST_F(Trace, TotalsOfStagesAreCountedAtEveryLevel) {
  for (const Level level : {Level::off, Level::stages, Level::ops}) {
    recorder().level = level;
    const Scope stage(spans::decode);
    const Scope layer(spans::decode_batch);
  }
  ASSERT_EQ(recorder().stages.size(), 1U);
  const Total& total = recorder().stages.at("decode");
  EXPECT_EQ(total.count, 3);
  std::int64_t recorded = 0;
  for (const Span& span : recorder().spans) {
    if (span.name == std::string_view("decode")) recorded += span.duration_ns;
  }
  EXPECT_GE(total.duration_ns, recorded);
}

TEST_F(Trace, SpanEndedIsCalledAfterSpansOfStagesAndLayers) {
  recorder().level = Level::ops;
  std::vector<std::pair<Level, std::size_t>> calls;  // level, spans recorded so far
  recorder().span_ended = [&](Level level) { calls.emplace_back(level, recorder().spans.size()); };
  {
    const Scope stage(spans::denoise_step);
    const Scope layer(spans::transformer_block);
    const Scope product(spans::product);
  }
  const std::vector<std::pair<Level, std::size_t>> expected{{Level::layers, 2}, {Level::stages, 3}};
  EXPECT_EQ(calls, expected);
}

TEST_F(Trace, MessagesAreRecordedAtOpsAndInHandOvers) {
  for (const Level level : {Level::off, Level::stages, Level::layers, Level::ops}) {
    recorder().level = level;
    EXPECT_EQ(recorder().records_messages(), level == Level::ops);
    const HandOverMark mark;
    EXPECT_EQ(recorder().records_messages(), level != Level::off);
  }
}

TEST_F(Trace, ClockDoesNotRunBackwards) {
  const auto before = now_ns();
  EXPECT_GE(now_ns(), before);
}

}  // namespace
}  // namespace reelmesh::trace
