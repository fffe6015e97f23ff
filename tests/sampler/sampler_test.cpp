#include "sampler/sampler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>

#include "base/error.hpp"
#include "reference_lines.hpp"
#include "sampler/generator.hpp"
#include "sampler/guidance.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t numel_of_case = 20;

Tensor draw(TorchGenerator& generator) {
  const Tensor values = Tensor::empty({numel_of_case}, DType::float32);
  fill_noise(generator, {numel_of_case}, {0}, {numel_of_case}, values.data<float>());
  return values;
}

Tensor filled(const Shape& shape, float value) {
  const Tensor values = Tensor::empty(shape, DType::float32);
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
    SchedulerConfig config;
    in >> kind >> steps >> config.timestep_spacing >> config.snr_shift_scale >>
        config.rescale_betas_zero_snr >> config.set_alpha_to_one >> calls;
    ASSERT_TRUE(in);
    Sampler sampler(sampler_kind_of_option(kind), Schedule(config, steps));
    ASSERT_EQ(sampler.schedule().calls(), calls);

    TorchGenerator generator(3);
    TorchGenerator predictions(7);
    const Tensor x = draw(generator);
    for (int i = 0; i < calls; ++i) {
      sampler.step(i, draw(predictions), x, [&](std::span<float> box) {
        fill_noise(generator, {numel_of_case}, {0}, {numel_of_case}, box.data());
      });
      if (i < 3 || i + 1 == calls) {
        std::istringstream expected(lines.at(at++));
        EXPECT_EQ(bits(x.span<float>()), read_bits(expected, numel_of_case)) << "after call " << i;
      }
    }
  }
}

TEST(Sampler, DrawsAsOftenAsTheReference) {
  const Schedule schedule({}, 50);
  int drawn = 0;
  int promised = 0;
  const Tensor x = filled({3}, 1.0F), v = filled({3}, 0.5F);
  Sampler dpm(SamplerKind::dpm, schedule);
  for (int i = 0; i < 50; ++i) {
    promised += dpm.draws(i);
    dpm.step(i, v, x, [&](std::span<float> box) {
      ++drawn;
      for (float& n : box) n = 0.25F;
    });
  }
  EXPECT_EQ(drawn, 98);
  EXPECT_EQ(promised, 98);
  Sampler ddim(SamplerKind::ddim, schedule);
  ddim.step(0, v, x, [](std::span<float>) { ADD_FAILURE() << "DDIM draws nothing"; });
}

TEST(Sampler, StartsAnewForTheNextClip) {
  const Schedule schedule({}, 4);
  const auto run = [](Sampler& sampler) {
    TorchGenerator generator(1);
    const Tensor x = draw(generator);
    for (int i = 0; i < 4; ++i) {
      sampler.step(i, filled({numel_of_case}, 0.5F), x, [&](std::span<float> box) {
        fill_noise(generator, {numel_of_case}, {0}, {numel_of_case}, box.data());
      });
    }
    return x;
  };
  Sampler used(SamplerKind::dpm, schedule);
  Sampler fresh(SamplerKind::dpm, schedule);
  run(used);
  EXPECT_EQ(bits(run(used).span<float>()), bits(run(fresh).span<float>()));
}

TEST(Sampler, RefusesStepsOutOfOrderAndTensorsThatDiffer) {
  Sampler sampler(SamplerKind::dpm, Schedule({}, 4));
  const Tensor x = filled({3}, 0);
  const auto none = [](std::span<float>) {};
  EXPECT_THROW(sampler.step(1, x, x, none), Error);
  EXPECT_THROW(sampler.step(0, filled({2}, 0), x, none), Error);
}

TEST(Sampler, WorksOnAnEmptyBox) {
  Sampler sampler(SamplerKind::dpm, Schedule({}, 4));
  const Tensor x = Tensor::empty({2, 0, 3}, DType::float32);
  for (int i = 0; i < 4; ++i) EXPECT_NO_THROW(sampler.step(i, x, x, [](std::span<float>) {}));
}

TEST(SamplerKind, IsKnownByItsNames) {
  EXPECT_EQ(sampler_kind_of_class("CogVideoXDDIMScheduler"), SamplerKind::ddim);
  EXPECT_EQ(sampler_kind_of_class("CogVideoXDPMScheduler"), SamplerKind::dpm);
  EXPECT_THROW(sampler_kind_of_class("EulerDiscreteScheduler"), Error);
  EXPECT_THROW(sampler_kind_of_option("euler"), Error);
}

TEST(GuidanceScale, FollowsTheReferenceSequence) {
  for (const std::string& line : reference_lines("guidance.txt")) {
    double scale = 0;
    int steps = 0;
    std::int64_t t = 0;
    double expected = 0;
    std::istringstream(line) >> scale >> steps >> t >> expected;
    // pow may differ in its last bit; at an argument of 8 million that is 1e-9.
    EXPECT_NEAR(guidance_scale(scale, true, steps, t), expected, 2e-8) << line;
    EXPECT_EQ(guidance_scale(scale, false, steps, t), scale);
  }
}

TEST(CombineGuidance, RoundsEachOperation) {
  const Tensor uncond = Tensor::of({0.1F, -2.0F, 3.3333333F, 0.0F}, {4});
  const Tensor cond = Tensor::of({0.7F, 1.5F, 3.3333335F, -0.0F}, {4});
  const Tensor out = filled({4}, 0);
  combine_guidance(6.0, uncond, cond, out);
  for (std::size_t i = 0; i < 4; ++i) {
    const float difference = cond.span<float>()[i] - uncond.span<float>()[i];
    const float scaled = 6.0F * difference;
    EXPECT_EQ(out.span<float>()[i], uncond.span<float>()[i] + scaled);
  }
  const Tensor in_place = cond.clone();
  combine_guidance(6.0, uncond, in_place, in_place);
  EXPECT_EQ(bits(in_place.span<float>()), bits(out.span<float>()));
  EXPECT_THROW(combine_guidance(6.0, uncond, cond, out.rows(0, 2)), Error);
}

// Steps on boxes of any kind are the steps on the whole: random shapes, kinds and boxes, some
// empty.
TEST(Sampler, GivesABoxTheBitsOfTheWhole) {
  std::mt19937 random(5);
  for (int i = 0; i < 30; ++i) {
    Shape global;
    for (int axis = 0; axis < 4; ++axis) global.push_back(1 + std::int64_t(random() % 6));
    const SamplerKind kind = i % 2 == 0 ? SamplerKind::ddim : SamplerKind::dpm;
    const int steps = 2 + int(random() % 5);
    const auto run = [&](const Shape& offset, const Shape& extent) {
      TorchGenerator generator{unsigned(i)}, predictions{77};
      const auto drawn = [&](TorchGenerator& from) {
        const Tensor box = Tensor::empty(extent, DType::float32);
        fill_noise(from, global, offset, extent, box.data<float>());
        return box;
      };
      Sampler sampler(kind, Schedule({}, steps));
      const Tensor x = drawn(generator);
      for (int step = 0; step < sampler.schedule().calls(); ++step) {
        sampler.step(step, drawn(predictions), x, [&](std::span<float> box) {
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
