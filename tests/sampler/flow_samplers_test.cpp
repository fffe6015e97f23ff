// UniPC and Euler steps of flow models, with the schedules and steps of diffusers.
#include "sampler/flow_samplers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sampler/flow_euler.hpp"
#include "sampler/noise_levels.hpp"
#include "sampler/sampler_rows.hpp"
#include "sampler/unipc.hpp"
#include "support/expect_error.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh {
namespace {

nlohmann::json flow_cases() {
  std::ifstream file(std::string(REELMESH_TEST_DATA) + "/sampler/flow.json");
  EXPECT_TRUE(file);
  return nlohmann::json::parse(file);
}

FlowSettings settings_of(const nlohmann::json& given) {
  FlowSettings settings{.shift = given["shift"].get<double>()};
  if (given.contains("levels")) settings.levels = given["levels"].get<std::vector<double>>();
  return settings;
}

TEST(FlowSamplers, HaveTheSchedulesOfTheReference) {
  for (const auto& given : flow_cases()) {
    SCOPED_TRACE(fmt::format("{} {} {}", given["sampler"].dump(), given["steps"].dump(),
                             given["shift"].dump()));
    const int steps = given["steps"].get<int>();
    const bool unipc = given["sampler"] == "unipc";
    const FlowSchedule schedule = unipc ? unipc_schedule(settings_of(given), steps)
                                        : euler_schedule(settings_of(given), steps);
    EXPECT_EQ(schedule.sigmas, given["sigmas"].get<std::vector<float>>());
    EXPECT_EQ(schedule.timesteps, given["timesteps"].get<std::vector<double>>());
    const auto sampler = sampler_of_option(flow_samplers(), given["sampler"].get<std::string>())
                             .make(settings_of(given), steps);
    ASSERT_EQ(sampler->calls(), steps);
    for (int i = 0; i < steps; ++i) {
      EXPECT_EQ(sampler->timestep(i), schedule.timesteps[static_cast<std::size_t>(i)]);
    }
  }
}

// How the model's predictions are made is described in tools/reference/make_flow_sampler_data.py.
TEST(FlowSamplers, TakeTheStepsOfTheReference) {
  constexpr int elements = 6;
  double largest = 0;
  for (const auto& given : flow_cases()) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", given["sampler"].dump(), given["steps"].dump(),
                             given["shift"].dump(), given["kind"].dump()));
    const auto sampler = sampler_of_option(flow_samplers(), given["sampler"].get<std::string>())
                             .make(settings_of(given), given["steps"].get<int>());
    Tensor x = Tensor::empty({1, 1, 1, elements}, DType::float32), v = x.clone();
    for (int k = 0; k < elements; ++k) x.data<float>()[k] = static_cast<float>(k - 2);
    std::vector<Tensor> history;
    for (int i = 0; i < sampler->calls(); ++i) {
      const auto t = static_cast<float>(sampler->timestep(i));
      for (int k = 0; k < elements; ++k) {
        v.data<float>()[k] = given["kind"] == "rough"
                                 ? static_cast<float>((7919 * i + 104729 * k) % 1000 / 500.0 - 1)
                                 : x.data<float>()[k] / 2 + (t / 1000 - 0.25F);
      }
      sampler->step(i, v, x, history, {});
      const auto expected = given["x"][static_cast<std::size_t>(i)].get<std::vector<float>>();
      double scale = 1;
      for (const float value : expected) scale = std::max(scale, std::abs(double{value}));
      for (int k = 0; k < elements; ++k) {
        const double error =
            std::abs(double{x.data<float>()[k]} - expected[static_cast<std::size_t>(k)]) / scale;
        largest = std::max(largest, error);
        ASSERT_LT(error, 2e-6) << "step " << i << ", element " << k;
      }
    }
  }
  RecordProperty("largest_error", fmt::format("{:.2e}", largest));
}

// Dry runs count what is kept after the first step, and restart files hold all of it.
TEST(FlowSamplers, KeepTheSameTensorsInAllSteps) {
  for (const FlowSampler& kind : flow_samplers()) {
    const auto sampler = kind.make({.shift = 3}, 4);
    Tensor x = test::random_tensor({2, 4, 3, 5}, 1);
    std::vector<Tensor> history;
    for (int i = 0; i < 4; ++i) {
      sampler->step(i, test::random_tensor(x.shape(), 2), x, history, {});
      EXPECT_EQ(history.size(), kind.option == "unipc" ? 3U : 0U) << kind.option << i;
    }
  }
}

// A rank has a box of the latents; a restart reads the history from a file.
TEST(FlowSamplers, GiveTheSameBitsInPartsAndAfterARestart) {
  const Shape shape{4, 3, 2, 5};
  for (const FlowSampler& kind : flow_samplers()) {
    const auto sampler = kind.make({.shift = 5}, 6);
    Tensor whole = test::random_tensor(shape, 1);
    Tensor front = whole.rows(0, 1).clone(), back = whole.rows(1, 3).clone();
    std::vector<Tensor> kept, of_front, of_back;
    for (int i = 0; i < 6; ++i) {
      const Tensor v = test::random_tensor(shape, 10 + static_cast<unsigned>(i));
      sampler->step(i, v, whole, kept, {});
      sampler->step(i, v.rows(0, 1), front, of_front, {});
      std::vector<Tensor> restored;
      for (const Tensor& tensor : of_back) restored.push_back(tensor.clone());
      of_back = restored;
      sampler->step(i, v.rows(1, 3), back, of_back, {});
    }
    EXPECT_TRUE(test::same_bits(front, whole.rows(0, 1).clone())) << kind.option;
    EXPECT_TRUE(test::same_bits(back, whole.rows(1, 3).clone())) << kind.option;
  }
}

TEST(FlowSamplers, AreFoundByTheirNames) {
  EXPECT_EQ(sampler_of_option(flow_samplers(), "unipc").class_name, "UniPCMultistepScheduler");
  EXPECT_EQ(sampler_of_class(flow_samplers(), "FlowMatchEulerDiscreteScheduler").option, "euler");
  test::expect_error(
      Status::usage, [] { sampler_of_option(flow_samplers(), "ddim"); }, "sample.scheduler", "ddim",
      "unipc or euler");
  test::expect_error(
      Status::data, [] { sampler_of_class(flow_samplers(), "DDIMScheduler"); }, "DDIMScheduler",
      "UniPCMultistepScheduler");
}

TEST(FlowSamplers, RefuseWhatNoModelHas) {
  for (const FlowSampler& kind : flow_samplers()) {
    for (const double shift : {0.0, -1.0, std::nan("")}) {
      test::expect_error(
          Status::usage, [&] { kind.make({.shift = shift}, 4); }, "shift");
    }
    test::expect_error(
        Status::usage, [&] { kind.make({}, 0); }, "sample.steps", "1 to 1000");
    test::expect_error(
        Status::usage, [&] { kind.make({}, 1001); }, "sample.steps", "1001");
    test::expect_error(
        Status::data, [&] { kind.make({.num_train_timesteps = 0}, 1); }, "num_train_timesteps");
    test::expect_error(
        Status::usage,
        [&] {
          kind.make({.levels = {1, 0.5}}, 3);
        },
        "sample.noise-levels", "found 2 levels for 3 steps");
  }
  test::expect_error(
      Status::usage,
      [] {
        unipc_schedule({.levels = {1, 0.5}}, 2);
      },
      "sample.noise-levels", "found 1,0.5 for the sampler unipc", "sample.scheduler = euler");
}

TEST(NoiseLevels, AreReadAsTheyAreWritten) {
  for (const char* text : {"1", "1,0.75,0.5,0.25", "0.9,1e-05"}) {
    ASSERT_TRUE(NoiseLevels::read(text)) << text;
    EXPECT_EQ(NoiseLevels::read(text)->text(), text);
  }
  EXPECT_EQ(NoiseLevels::read("1,0.5")->steps(), 2);
  for (const char* text : {"", "1,", ",1", "1.5", "1,1", "0.5,0.75", "0", "1,0", "-1", "nan",
                           "1,nan", "inf", "1 0.5", "1, 0.5", "x"}) {
    EXPECT_FALSE(NoiseLevels::read(text)) << text;
  }
  std::string many = "1";
  for (int i = 1; i < 1000; ++i) many += fmt::format(",{}", 1 - i / 1001.0);
  EXPECT_EQ(NoiseLevels::read(many).value().steps(), 1000);
  EXPECT_FALSE(NoiseLevels::read(many + ",0.0001"));
}

}  // namespace
}  // namespace reelmesh
