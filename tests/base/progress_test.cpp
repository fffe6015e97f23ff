#include "base/progress.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace reelmesh {
namespace {

struct Bench {
  double now = 100;
  std::ostringstream out;
  ProgressLine::Output output(bool terminal) {
    return {.stream = &out, .terminal = terminal, .seconds = [this] { return now; }};
  }
};

TEST(Progress, WritesALineOfALogAfterTwoSecondsAndThenEveryTen) {
  Bench bench;
  Progress progress("denoise", 50, "step", bench.output(false));
  for (int step = 0; step < 50; ++step) {
    bench.now += 1.5;
    progress.advance();
    if (step == 0) {
      EXPECT_EQ(bench.out.str(), "") << "nothing before 2 s";
    }
    if (step == 1) {
      EXPECT_EQ(bench.out.str(), "denoise: 2 of 50 steps (4 %), 1.50 s/step, 1 min 12 s left\n");
    }
  }
  const std::string text = bench.out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7);  // after 2, and then every 7 steps
  EXPECT_EQ(text.find('\r'), std::string::npos);
  progress.finish();
  EXPECT_TRUE(bench.out.str().ends_with("denoise: 50 steps in 1 min 15 s, 1.50 s/step\n"));
}

TEST(Progress, RewritesOneLineOfATerminal) {
  Bench bench;
  Progress progress("decode", 10, "frame", bench.output(true));
  bench.now += 0.05;
  progress.advance();
  EXPECT_EQ(bench.out.str(), "") << "not more than ten times a second";
  bench.now += 0.45;
  progress.advance(4);
  EXPECT_EQ(bench.out.str(),
            "\x1b[K"
            "decode: 5 of 10 frames (50 %), 10.00 frames/s, 0.50 s left\r");
  progress.advance(5);
  progress.finish();
  EXPECT_TRUE(
      bench.out.str().ends_with("\x1b[K"
                                "decode: 10 frames in 0.50 s, 20.00 frames/s\n"));
}

TEST(Progress, DoesNotCountPauses) {
  Bench bench;
  Progress progress("denoise", 2, "step", bench.output(false));
  progress.pause();
  bench.now += 100;  // prompts are encoded
  progress.resume();
  bench.now += 20;
  progress.advance();
  EXPECT_EQ(bench.out.str(), "denoise: 1 of 2 steps (50 %), 20.00 s/step, 20.00 s left\n");
  progress.pause();
  bench.now += 300;  // a clip is decoded
  progress.finish();
  EXPECT_TRUE(bench.out.str().ends_with("denoise: 1 step in 20.00 s, 20.00 s/step\n"))
      << bench.out.str();
}

TEST(Progress, IsSilentIfDisabled) {
  testing::internal::CaptureStderr();
  Progress progress("denoise", 2, "step", ProgressLine::standard_error(false));
  progress.advance(2);
  progress.finish();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace reelmesh
