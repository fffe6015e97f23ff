#include "sampler/cogvideox.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>

#include "base/error.hpp"
#include "reference_lines.hpp"
#include "sampler/generator.hpp"
#include "sampler/guidance.hpp"
#include "sampler/noise.hpp"
#include "sampler/sampler_rows.hpp"
#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t numel_of_case = 20;

Tensor draw(TorchGenerator& generator) {
  Tensor values = Tensor::empty({numel_of_case}, DType::float32);
  fill_noise(generator, {numel_of_case}, {0}, {numel_of_case}, values.data<float>());
  return values;
}

Tensor filled(const Shape& shape, float value) {
  Tensor values = Tensor::empty(shape, DType::float32);
  for (float& x : values.span<float>()) x = value;
  return values;
}

// Latents and noise come from one generator, predictions from another, as in the script.
TEST(Sampler, TakesTheStepsOfTheReferenceToTheBit) {
  const std::vector<std::string> lines = reference_lines("trajectories.txt");
  for (std::size_t at = 0; at < lines.size();) {
    std::istringstream in(lines[at]);
    SCOPED_TRACE(lines[at++]);
    std::string kind;
    int steps = 0;
    int calls = 0;
    SchedulerConfig config = released_scheduler();
    in >> kind >> steps >> config.timestep_spacing >> config.snr_shift_scale >>
        config.rescale_betas_zero_snr >> config.set_alpha_to_one >> calls;
    ASSERT_TRUE(in);
    const auto sampler =
        sampler_of_option(cogvideox_samplers(), kind).make(NoiseSchedule(config, steps));
    ASSERT_EQ(sampler->calls(), calls);

    TorchGenerator generator(3);
    TorchGenerator predictions(7);
    Tensor x = draw(generator);
    std::vector<Tensor> history;
    for (int i = 0; i < calls; ++i) {
      sampler->step(i, draw(predictions), x, history, [&](std::span<float> box) {
        fill_noise(generator, {numel_of_case}, {0}, {numel_of_case}, box.data());
      });
      if (i < 3 || i + 1 == calls) {
        std::istringstream expected(lines.at(at++));
        EXPECT_EQ(bits(x.span<float>()), read_bits(expected, numel_of_case)) << "after call " << i;
      }
    }
  }
}

// A clip of a video begins from its latents with noise, at a later timestep.
TEST(Sampler, BeginsFromVideosLikeTheReference) {
  const std::vector<std::string> lines = reference_lines("starts.txt");
  for (std::size_t at = 0; at < lines.size();) {
    std::istringstream in(lines[at]);
    SCOPED_TRACE(lines[at++]);
    std::string kind, type;
    int steps = 0, calls = 0;
    double strength = 0, first = 0;
    SchedulerConfig config = released_scheduler();
    in >> kind >> steps >> config.timestep_spacing >> config.snr_shift_scale >>
        config.rescale_betas_zero_snr >> config.set_alpha_to_one >> type >> strength >> calls >>
        first;
    ASSERT_TRUE(in);
    const DType dtype = type == "float32"    ? DType::float32
                        : type == "bfloat16" ? DType::bfloat16
                                             : DType::float16;
    const NoiseSchedule schedule(config, steps, skipped_steps(steps, strength));
    const auto sampler = sampler_of_option(cogvideox_samplers(), kind).make(schedule);
    ASSERT_EQ(sampler->calls(), calls);
    EXPECT_EQ(sampler->timestep(0), first);

    const auto expect_next = [&](const Tensor& x) {
      std::istringstream expected(lines.at(at++));
      EXPECT_EQ(bits(x.span<float>()), read_bits(expected, numel_of_case));
    };
    TorchGenerator generator(3);
    TorchGenerator predictions(7);
    Tensor x = draw(generator).to(dtype).to(DType::float32).clone();
    const Tensor noise = draw(generator).to(dtype).to(DType::float32);
    add_noise(first_noise_level(schedule, dtype), noise, x);
    expect_next(x);
    std::vector<Tensor> history;
    for (int i = 0; i < std::min(calls, 2); ++i) {
      sampler->step(i, draw(predictions), x, history, [&](std::span<float> box) {
        fill_noise(generator, {numel_of_case}, {0}, {numel_of_case}, box.data());
      });
      expect_next(x);
    }
  }
}

// Of diffusers 0.36, whose CogVideoXDDIMScheduler.add_noise computes in the type of the latents.
TEST(NoiseLevel, IsRoundedAfterEachOperation) {
  struct Case {
    int skipped;
    float signal, noise;
  };
  for (const Case& expected :
       {Case{15, 0.13671875F, 0.98828125F}, Case{27, 0.353515625F, 0.93359375F},
        Case{36, 0.58203125F, 0.81640625F}}) {
    SchedulerConfig config = released_scheduler();
    config.snr_shift_scale = 3;
    const NoiseLevel level =
        first_noise_level(NoiseSchedule(config, 50, expected.skipped), DType::bfloat16);
    EXPECT_EQ(level.signal, expected.signal) << expected.skipped;
    EXPECT_EQ(level.noise, expected.noise) << expected.skipped;
  }
}

TEST(NoiseSchedule, LeavesOutTheStepsThatStrengthDoesNotCompute) {
  EXPECT_EQ(skipped_steps(50, 0.8), 10);
  EXPECT_EQ(skipped_steps(50, 1), 0);
  EXPECT_EQ(skipped_steps(7, 0.29), 5);     // 2.03 steps
  EXPECT_EQ(skipped_steps(50, 0.019), 50);  // none is left
  EXPECT_THROW(NoiseSchedule(released_scheduler(), 4, 4), Error);
}

TEST(Sampler, DrawsAsOftenAsTheReference) {
  const NoiseSchedule schedule(released_scheduler(), 50);
  int drawn = 0;
  int promised = 0;
  Tensor x = filled({3}, 1.0F);
  const Tensor v = filled({3}, 0.5F);
  std::vector<Tensor> history;
  const DpmSampler dpm(schedule);
  for (int i = 0; i < 50; ++i) {
    promised += dpm.draws(i);
    dpm.step(i, v, x, history, [&](std::span<float> box) {
      ++drawn;
      for (float& n : box) n = 0.25F;
    });
  }
  EXPECT_EQ(drawn, 98);
  EXPECT_EQ(promised, 98);
  const DdimSampler ddim(schedule);
  ddim.step(0, v, x, history, [](std::span<float>) { ADD_FAILURE() << "DDIM draws nothing"; });
}

TEST(Sampler, RestartsForTheNextClip) {
  const DpmSampler sampler(NoiseSchedule(released_scheduler(), 4));
  const auto run = [&](std::vector<Tensor>& history) {
    TorchGenerator generator(1);
    Tensor x = draw(generator);
    for (int i = 0; i < 4; ++i) {
      sampler.step(i, filled({numel_of_case}, 0.5F), x, history, [&](std::span<float> box) {
        fill_noise(generator, {numel_of_case}, {0}, {numel_of_case}, box.data());
      });
    }
    return x;
  };
  std::vector<Tensor> used, fresh;
  run(used);
  EXPECT_EQ(bits(run(used).span<float>()), bits(run(fresh).span<float>()));
}

TEST(Sampler, RefusesStepsOutOfOrderAndTensorsThatDiffer) {
  const DpmSampler sampler(NoiseSchedule(released_scheduler(), 4));
  Tensor x = filled({3}, 0);
  std::vector<Tensor> history;
  const auto none = [](std::span<float>) {};
  EXPECT_THROW(sampler.step(1, x, x, history, none), Error) << "without what step 0 leaves";
  EXPECT_THROW(sampler.step(0, filled({2}, 0), x, history, none), Error);
}

TEST(Sampler, WorksOnAnEmptyBox) {
  const DpmSampler sampler(NoiseSchedule(released_scheduler(), 4));
  Tensor x = Tensor::empty({2, 0, 3}, DType::float32);
  std::vector<Tensor> history;
  for (int i = 0; i < 4; ++i) {
    EXPECT_NO_THROW(sampler.step(i, x, x, history, [](std::span<float>) {}));
  }
}

TEST(CogVideoXSamplers, AreFoundByTheirNames) {
  const auto rows = cogvideox_samplers();
  EXPECT_EQ(sampler_of_class(rows, "CogVideoXDDIMScheduler").option, "ddim");
  EXPECT_EQ(sampler_of_option(rows, "dpm").class_name, "CogVideoXDPMScheduler");
  test::expect_error(
      Status::data, [&] { sampler_of_class(rows, "EulerDiscreteScheduler"); },
      "found the class EulerDiscreteScheduler, expected CogVideoXDDIMScheduler or "
      "CogVideoXDPMScheduler");
  test::expect_error(
      Status::usage, [&] { sampler_of_option(rows, "euler"); },
      "sample.scheduler is \"euler\", expected ddim or dpm");
}

TEST(GuidanceScale, FollowsTheReferenceSequence) {
  for (const std::string& line : reference_lines("guidance.txt")) {
    double scale = 0;
    int steps = 0;
    std::int64_t t = 0;
    double expected = 0;
    std::istringstream(line) >> scale >> steps >> t >> expected;
    // pow may differ in its last bit; for a cosine of 8 million that is an error of 1e-9.
    EXPECT_NEAR(dynamic_guidance(scale, steps)(double(t)), expected, 2e-8) << line;
    EXPECT_EQ(constant_guidance(scale)(double(t)), scale);
  }
}

TEST(Guidance, RoundsEachOperation) {
  const Tensor uncond = Tensor::of({0.1F, -2.0F, 3.3333333F, 0.0F}, {1, 4, 1, 1});
  Tensor cond = Tensor::of({0.7F, 1.5F, 3.3333335F, -0.0F}, {1, 4, 1, 1});
  const Tensor before = cond.clone();
  guide_channels(6.0, 4, uncond, cond);
  for (std::size_t i = 0; i < 4; ++i) {
    const float difference = before.span<float>()[i] - uncond.span<float>()[i];
    const float scaled = 6.0F * difference;
    EXPECT_EQ(cond.span<float>()[i], uncond.span<float>()[i] + scaled);
  }
}

TEST(Guidance, HasTheScaleOfItsTimestep) {
  const Tensor uncond = filled({1, 2, 1, 1}, 1);
  const Guidance guidance{[](double timestep) { return timestep < 500 ? 3 : 6; }, 1};
  for (const double timestep : {400, 500}) {
    Tensor cond = filled({1, 2, 1, 1}, 2);
    guidance.apply(timestep, uncond, cond);
    EXPECT_EQ(cond.span<float>()[0], timestep < 500 ? 4 : 7);
    EXPECT_EQ(cond.span<float>()[1], 2) << "it acts on the first channel only";
  }
}

// Steps on a box give the bits of steps on the whole array: random shapes, samplers and boxes, some
// empty.
TEST(Sampler, GivesABoxTheBitsOfTheWhole) {
  std::mt19937 random(5);
  for (int i = 0; i < 30; ++i) {
    Shape global;
    for (int axis = 0; axis < 4; ++axis) global.push_back(1 + std::int64_t(random() % 6));
    const CogVideoXSampler& kind =
        cogvideox_samplers()[std::size_t(i) % cogvideox_samplers().size()];
    const int steps = 2 + int(random() % 5);
    const auto run = [&](const Shape& offset, const Shape& extent) {
      TorchGenerator generator{unsigned(i)}, predictions{77};
      const auto drawn = [&](TorchGenerator& from) {
        Tensor box = Tensor::empty(extent, DType::float32);
        fill_noise(from, global, offset, extent, box.data<float>());
        return box;
      };
      const auto sampler = kind.make(NoiseSchedule(released_scheduler(), steps));
      Tensor x = drawn(generator);
      std::vector<Tensor> history;
      for (int step = 0; step < sampler->calls(); ++step) {
        sampler->step(step, drawn(predictions), x, history, [&](std::span<float> box) {
          fill_noise(generator, global, offset, extent, box.data());
        });
      }
      return x;
    };
    const Tensor whole = run({0, 0, 0, 0}, global);
    Shape offset, extent;
    for (const std::int64_t n : global) {
      offset.push_back(std::int64_t(random() % std::uint64_t(n)));
      extent.push_back(std::int64_t(random() % std::uint64_t(n - offset.back() + 1)));
    }
    std::vector<float> expected;
    for (std::int64_t e = 0; e < numel(global); ++e) {
      bool inside = true;
      for (std::int64_t axis = 3, rest = e; axis >= 0; --axis) {
        const auto a = std::size_t(axis);
        const std::int64_t at = rest % global[a];
        inside = inside && at >= offset[a] && at < offset[a] + extent[a];
        rest /= global[a];
      }
      if (inside) expected.push_back(whole.data<float>()[e]);
    }
    EXPECT_EQ(bits(run(offset, extent).span<float>()), bits(expected))
        << to_string(offset) << to_string(extent);
  }
}

}  // namespace
}  // namespace reelmesh
