#include "pipeline/step_trial.hpp"

#include <gtest/gtest.h>

namespace reelmesh::pipeline {
namespace {

void add_step(const trace::SpanKind& kind, std::int64_t milliseconds) {
  trace::Total& total = trace::recorder().stages[kind.name];
  ++total.count;
  total.duration_ns += 1'000'000 * milliseconds;
}

TEST(StepTrial, GivesTheMedianWithoutTheFirst) {
  add_step(trace::spans::denoise_step, 7000);  // before the trial
  StepTrial trial;
  for (const int milliseconds : {900, 20, 500}) {
    add_step(trace::spans::denoise_step, milliseconds);
    EXPECT_FALSE(trial.enough_after_step());
  }
  add_step(trace::spans::denoise_step, 30);
  EXPECT_TRUE(trial.enough_after_step());
  EXPECT_DOUBLE_EQ(trial.seconds(), 0.03);
}

TEST(StepTrial, StepsThatAreNotComputedDoNotCount) {
  StepTrial trial;
  for (int i = 0; i < 10; ++i) {
    add_step(trace::spans::reuse_step, 1);
    EXPECT_FALSE(trial.enough_after_step());
  }
  EXPECT_EQ(trial.seconds(), 0);
  add_step(trace::spans::denoise_step, 40);
  EXPECT_FALSE(trial.enough_after_step());
  EXPECT_EQ(trial.seconds(), 0) << "the first step does not count";
}

}  // namespace
}  // namespace reelmesh::pipeline
