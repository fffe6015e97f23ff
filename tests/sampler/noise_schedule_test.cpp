#include "sampler/noise_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "reference_lines.hpp"

namespace reelmesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(AlphaBarTable, EqualsTheReference) {
  for (const std::string& line : reference_lines("alphas.txt")) {
    SchedulerConfig config = released_scheduler();
    std::size_t index = 0;
    double expected = 0;
    std::istringstream(line) >> config.snr_shift_scale >> config.rescale_betas_zero_snr >> index >>
        expected;
    // Some of the reference's square roots differ in the last bit.
    EXPECT_NEAR(alpha_bar_table(config).at(index), expected, 4e-16 * expected) << line;
  }
}

TEST(AlphaBarTable, EndsWithoutSignal) {
  SchedulerConfig config = released_scheduler();
  EXPECT_EQ(alpha_bar_table(config).back(), 0.0);
  config.rescale_betas_zero_snr = false;
  EXPECT_GT(alpha_bar_table(config).back(), 0.0);
}

TEST(InferenceTimesteps, EqualTheReferenceForEveryNumberOfSteps) {
  for (const std::string& line : reference_lines("timesteps.txt")) {
    SchedulerConfig config = released_scheduler();
    int first = 0;
    int last = 0;
    std::uint64_t hash = 0;
    std::istringstream(line) >> config.timestep_spacing >> first >> last >> std::hex >> hash;
    Hash all;
    for (int steps = first; steps <= last; ++steps) {
      for (const std::int64_t t : inference_timesteps(config, steps)) {
        all.add(static_cast<std::uint64_t>(t));
      }
    }
    EXPECT_EQ(all.value, hash) << line;
  }
}

TEST(InferenceTimesteps, AreWhatTheSchedulersCall) {
  const auto timesteps = [](const char* spacing, std::int64_t offset, int steps) {
    SchedulerConfig config = released_scheduler();
    config.timestep_spacing = spacing;
    config.steps_offset = offset;
    return inference_timesteps(config, steps);
  };
  EXPECT_THAT(timesteps("trailing", 0, 4), ElementsAre(999, 749, 499, 249));
  EXPECT_THAT(timesteps("leading", 0, 4), ElementsAre(750, 500, 250, 0));
  EXPECT_THAT(timesteps("leading", 1, 4), ElementsAre(751, 501, 251, 1));
  EXPECT_THAT(timesteps("linspace", 0, 4), ElementsAre(999, 666, 333, 0));
  const std::vector<std::int64_t> odd = timesteps("trailing", 0, 61);
  EXPECT_EQ(odd.size(), 62U);
  EXPECT_EQ(odd.back(), -1);
}

TEST(NoiseSchedule, LeadsEachStepByTheStrideNotToTheNextEntry) {
  const NoiseSchedule schedule(released_scheduler(),
                               30);  // the entries are 33 or 34 apart, the stride is 33
  EXPECT_EQ(schedule.steps(), 30);
  EXPECT_EQ(schedule.timesteps().at(0), 999);
  EXPECT_EQ(schedule.target(0), 966);
  EXPECT_EQ(schedule.target_alpha_bar(0), schedule.alpha_bar(966));
  EXPECT_LT(schedule.target(29), 0);
  EXPECT_EQ(schedule.target_alpha_bar(29), 1.0);
  EXPECT_EQ(schedule.alpha_bar(-1), 0.0);

  const NoiseSchedule kept(
      changed_scheduler([](SchedulerConfig& c) { c.set_alpha_to_one = false; }), 30);
  EXPECT_EQ(kept.target_alpha_bar(29), kept.alpha_bar(0));
}

TEST(NoiseSchedule, RefusesStepsBeyondTheTraining) {
  for (const int steps : {0, -1, 1001}) {
    try {
      NoiseSchedule(released_scheduler(), steps);
      ADD_FAILURE() << steps;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::usage);
      EXPECT_THAT(error.what(), HasSubstr("sample.steps"));
    }
  }
}

TEST(SchedulerConfig, NamesTheKeyThatIsNotSupported) {
  using Change = void (*)(SchedulerConfig&);
  const std::vector<std::pair<std::string, Change>> cases = {
      {"beta_schedule", [](SchedulerConfig& c) { c.beta_schedule = "linear"; }},
      {"prediction_type", [](SchedulerConfig& c) { c.prediction_type = "epsilon"; }},
      {"timestep_spacing", [](SchedulerConfig& c) { c.timestep_spacing = "karras"; }},
      {"trained_betas", [](SchedulerConfig& c) { c.has_trained_betas = true; }},
      {"num_train_timesteps", [](SchedulerConfig& c) { c.num_train_timesteps = 1; }},
      {"num_train_timesteps",
       [](SchedulerConfig& c) { c.num_train_timesteps = std::int64_t{1} << 40; }},
      {"beta_start", [](SchedulerConfig& c) { c.beta_start = 0; }},
      {"beta_end", [](SchedulerConfig& c) { c.beta_end = 1.5; }},
      {"snr_shift_scale", [](SchedulerConfig& c) { c.snr_shift_scale = -1; }},
      {"steps_offset", [](SchedulerConfig& c) { c.steps_offset = -1; }},
  };
  for (const auto& [key, change] : cases) {
    try {
      NoiseSchedule(changed_scheduler(change), 10);
      ADD_FAILURE() << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::data) << key;
      EXPECT_THAT(error.what(), HasSubstr(key));
    }
  }
  try {  // valid for other numbers of steps
    NoiseSchedule(changed_scheduler([](SchedulerConfig& c) {
                    c.steps_offset = 300;
                    c.timestep_spacing = "leading";
                  }),
                  4);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::data);
    EXPECT_THAT(error.what(), HasSubstr("steps_offset"));
  }
}

}  // namespace
}  // namespace reelmesh
