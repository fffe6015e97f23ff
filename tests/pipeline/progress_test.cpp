#include "pipeline/progress.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/trace.hpp"

namespace reelmesh::pipeline {
namespace {

namespace spans = trace::spans;

comm::Activity in(const trace::SpanKind& stage, std::int64_t clip_steps, int step = -1) {
  comm::Activity rank;
  rank.stage = stage.name;
  rank.step = step;
  rank.clip_steps = clip_steps;
  return rank;
}

TEST(ClipsProgress, CountsStepsOfAllReplicasAndTimesOfBothStages) {
  ClipsProgress progress(5, 200, true);
  const auto line = [&](std::int64_t complete, double seconds,
                        const std::vector<comm::Activity>& ranks) {
    return progress.line(complete, ranks, seconds);
  };
  // An earlier job has made a clip.
  EXPECT_EQ(line(1, 100, {}), "1 of 5 clips");
  EXPECT_EQ(line(1, 102, {in(spans::load, 0), in(spans::encode, 0)}),
            "1 of 5 clips, loading and encoding");
  EXPECT_EQ(line(1, 112, {in(spans::denoise_step, 20, 20), in(spans::handover, 30, 30)}),
            "1 of 5 clips, 50 of 200 steps (25 %), 5.00 steps/s, denoising, 30.00 s of denoising "
            "left");
  EXPECT_EQ(line(1, 142, {in(spans::denoise_step, 100, 49), in(spans::denoise_step, 100, 49)}),
            "1 of 5 clips, 200 of 200 steps (100 %), 5.00 steps/s, denoising");
  EXPECT_EQ(line(1, 144, {in(spans::decode, 100), in(spans::write, 100)}),
            "1 of 5 clips, 200 of 200 steps (100 %), 5.00 steps/s, decoding and writing");
  EXPECT_EQ(line(2, 152, {in(spans::decode, 100), in(spans::decode, 100)}),
            "2 of 5 clips, 200 of 200 steps (100 %), 5.00 steps/s, decoding, 30.00 s left");
}

TEST(ClipsProgress, WithoutVideosStepsAreAll) {
  ClipsProgress progress(1, 10, false);
  (void)progress.line(0, {}, 0);
  const std::vector ranks{in(spans::denoise_step, 2, 1)};
  EXPECT_EQ(progress.line(0, ranks, 8),
            "0 of 1 clip, 2 of 10 steps (20 %), 4.00 s/step, denoising, 32.00 s left");
}

// As after a new plan, with which steps are computed once more.
TEST(ClipsProgress, MayComputeMoreStepsThanExpected) {
  ClipsProgress progress(2, 10, false);
  (void)progress.line(0, {}, 0);
  const std::vector ranks{in(spans::denoise_step, 12, 1)};
  EXPECT_EQ(progress.line(1, ranks, 6),
            "1 of 2 clips, 12 of 12 steps (100 %), 2.00 steps/s, denoising, 0.00 s left");
}

}  // namespace
}  // namespace reelmesh::pipeline
