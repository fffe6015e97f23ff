// The clean latents that a prediction means (Sampler::clean_factors), of all samplers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "sampler/cogvideox.hpp"
#include "sampler/flow_samplers.hpp"
#include "sampler/iddpm.hpp"
#include "sampler/rectified_flow.hpp"
#include "support/random_tensor.hpp"
#include "support/released_scheduler.hpp"

namespace reelmesh {
namespace {

const Shape shape{2, 3, 4, 5};

// Factors of a linear combination of clean latents and noise.
struct Mix {
  double clean = 0, noise = 0;
};

// A sampler, and what its model is trained for: in each step latents are one mix, predictions
// another.
struct Case {
  const char* name;
  std::unique_ptr<const Sampler> sampler;
  std::function<Mix(int step)> latents, prediction;
  std::int64_t ignored_channels = 0;  // of the prediction, after the others
};

std::vector<Case> cases() {
  std::vector<Case> all;
  // Whose last step leads to latents without noise.
  const SchedulerConfig config =
      changed_scheduler([](SchedulerConfig& c) { c.set_alpha_to_one = true; });
  for (const CogVideoXSampler& kind : cogvideox_samplers()) {
    const auto alpha_bar = [schedule = NoiseSchedule(config, 10)](int i) {
      return schedule.alpha_bar(schedule.timesteps().at(static_cast<std::size_t>(i)));
    };
    all.push_back({kind.option.data(), kind.make(NoiseSchedule(config, 10)),
                   [=](int i) {
                     return Mix{std::sqrt(alpha_bar(i)), std::sqrt(1 - alpha_bar(i))};
                   },
                   [=](int i) {
                     return Mix{-std::sqrt(1 - alpha_bar(i)), std::sqrt(alpha_bar(i))};
                   }});
  }
  for (const FlowSampler& kind : flow_samplers()) {
    const FlowSettings settings{.shift = 3};
    const auto sigmas =
        (kind.option == "unipc" ? unipc_schedule(settings, 7) : euler_schedule(settings, 7)).sigmas;
    all.push_back({kind.option.data(), kind.make(settings, 7),
                   [=](int i) {
                     const double sigma = sigmas.at(static_cast<std::size_t>(i));
                     return Mix{1 - sigma, sigma};
                   },
                   [](int) {
                     return Mix{-1, 1};
                   }});
  }
  const auto flow = std::make_shared<RectifiedFlow>(
      RectifiedFlowConfig{.use_timestep_transform = true}, 7, VideoSize{240, 424, 51});
  all.push_back(
      {"rectified flow",
       std::make_unique<RectifiedFlow>(RectifiedFlowConfig{.use_timestep_transform = true}, 7,
                                       VideoSize{240, 424, 51}),
       [=](int i) {
         const double t = flow->timestep(i) / 1000;
         return Mix{1 - t, t};
       },
       [](int) {
         return Mix{1, -1};
       },
       3});
  const std::vector<double> table = alpha_bar_table(IddpmConfig{});
  const auto iddpm = std::make_shared<Iddpm>(IddpmConfig{}, 7);
  all.push_back({"iddpm", std::make_unique<Iddpm>(IddpmConfig{}, 7),
                 [=](int i) {
                   const double alpha = table.at(static_cast<std::size_t>(iddpm->timestep(i)));
                   return Mix{std::sqrt(alpha), std::sqrt(1 - alpha)};
                 },
                 [](int) {
                   return Mix{0, 1};
                 },
                 3});
  return all;
}

Tensor mixed(const Mix& mix, const Tensor& clean, const Tensor& noise, std::int64_t more) {
  Tensor out = Tensor::zeros({shape[0], shape[1] + more, shape[2], shape[3]}, DType::float32);
  const std::int64_t pixels = shape[2] * shape[3];
  for (std::int64_t i = 0; i < clean.numel(); ++i) {
    const std::int64_t frame = i / (shape[1] * pixels);
    out.data<float>()[i + frame * more * pixels] =
        static_cast<float>(mix.clean * clean.data<float>()[i] + mix.noise * noise.data<float>()[i]);
  }
  return out;
}

// Largest difference relative to the largest value.
double difference(const Tensor& a, const Tensor& b) {
  double largest = 0, found = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    largest = std::max(largest, std::abs(double(b.data<float>()[i])));
    found = std::max(found, std::abs(double(a.data<float>()[i]) - double(b.data<float>()[i])));
  }
  return found / largest;
}

TEST(CleanLatents, AreThoseThatAnExactPredictionMeans) {
  const Tensor clean = test::random_tensor(shape, 1), noise = test::random_tensor(shape, 2);
  for (const Case& one : cases()) {
    for (int i = 0; i < one.sampler->calls(); ++i) {
      const Tensor x = mixed(one.latents(i), clean, noise, 0);
      const Tensor prediction = mixed(one.prediction(i), clean, noise, one.ignored_channels);
      // Where almost nothing of them is in the latents, rounding of these counts more.
      const double limit = one.prediction(i).clean == 0 ? 1e-6 / one.latents(i).clean : 1e-6;
      EXPECT_LT(difference(clean_latents(one.sampler->clean_factors(i), prediction, x), clean),
                limit)
          << one.name << " step " << i;
    }
  }
}

TEST(CleanLatents, OfTheLastStepAreItsResult) {
  for (const Case& one : cases()) {
    Tensor x = test::random_tensor(shape, 3);
    std::vector<Tensor> history;
    const auto no_noise = [](std::span<float> box) { std::ranges::fill(box, 0.0F); };
    for (int i = 0; i < one.sampler->calls(); ++i) {
      const Tensor v = test::random_tensor(
          {shape[0], shape[1] + one.ignored_channels, shape[2], shape[3]}, unsigned(10 + i));
      const Tensor clean = clean_latents(one.sampler->clean_factors(i), v, x);
      one.sampler->step(i, v, x, history, no_noise);
      if (i + 1 == one.sampler->calls()) {
        EXPECT_LT(difference(x, clean), 1e-6) << one.name;
      } else {
        EXPECT_GT(difference(x, clean), 1e-5) << one.name << " step " << i;
      }
    }
  }
}

}  // namespace
}  // namespace reelmesh
