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
    const Scope scope("denoise_step");
    recorder().bytes_sent += 24;
    recorder().flops += 7;
  }
  ASSERT_EQ(recorder().spans.size(), 1U);
  const Span& span = recorder().spans[0];
  EXPECT_STREQ(span.name, "denoise_step");
  EXPECT_EQ(span.clip, 3);
  EXPECT_EQ(span.step, 5);
  EXPECT_EQ(span.layer, -1);
  EXPECT_EQ(span.bytes, 24);
  EXPECT_EQ(span.flops, 7);
  EXPECT_GE(span.duration_ns, 0);
  EXPECT_EQ(recorder().clip, -1);
}

TEST_F(Trace, SkipsScopesFinerThanTheLevel) {
  {
    const Scope layer("layer", Level::layers);
    const Scope stage("encode", Level::stages);
  }
  recorder().level = Level::off;
  { const Scope stage("decode", Level::stages); }
  ASSERT_EQ(recorder().spans.size(), 1U);
  EXPECT_STREQ(recorder().spans[0].name, "encode");
}

TEST_F(Trace, ClockDoesNotRunBackwards) {
  const auto before = now_ns();
  EXPECT_GE(now_ns(), before);
}

}  // namespace
}  // namespace reelmesh::trace
