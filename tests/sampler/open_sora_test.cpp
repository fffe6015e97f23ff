// Compares the samplers of Open-Sora with Open-Sora's own, whose results
// tools/reference/make_opensora_sampler_data.py stores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "reference_lines.hpp"
#include "sampler/generator.hpp"
#include "sampler/guidance.hpp"
#include "sampler/iddpm.hpp"
#include "sampler/rectified_flow.hpp"

namespace reelmesh {
namespace {

using testing::HasSubstr;

// [frame, channel, row, column]; Open-Sora's order begins with the channel.
const Shape latent{3, 4, 2, 5}, answer{3, 8, 2, 5};
const Shape none{0, 0, 0, 0};

// Noise of this shape, drawn as a [copies, channel, frame, row, column] array.
Tensor drawn(TorchGenerator& generator, const Shape& shape, std::int64_t copies) {
  Tensor x = Tensor::empty(shape, DType::float32);
  fill_noise_by_channel(generator, shape, none, shape, copies, x.data<float>());
  return x;
}

// The guided prediction of the script's mock model. It draws two arrays: the first is the
// conditional prediction, the first plus a tenth of the second the unconditional one.
Tensor predicted(TorchGenerator& generator, std::int64_t guided_channels) {
  Tensor both = Tensor::empty({2 * answer[1], answer[0], answer[2], answer[3]}, DType::float32);
  fill_noise(generator, both.shape(), none, both.shape(), both.data<float>());
  Tensor cond = Tensor::empty(answer, DType::float32);
  Tensor null = Tensor::empty(answer, DType::float32);
  const std::int64_t pixels = answer[2] * answer[3], channels = answer[1];
  for (std::int64_t i = 0; i < cond.numel(); ++i) {
    const std::int64_t frame = i / (channels * pixels), channel = i / pixels % channels;
    const std::int64_t at = (channel * answer[0] + frame) * pixels + i % pixels;
    const float* from = both.data<float>() + at;
    cond.data<float>()[i] = from[0];
    null.data<float>()[i] = from[0] + 0.1F * from[cond.numel()];
  }
  guide_channels(7.0, guided_channels, null, cond);
  return cond;
}

// Largest difference relative to the largest value; the reference is [channel, frame, …].
double error_against(const Tensor& x, const std::string& line) {
  std::istringstream in(line);
  const auto words = read_bits(in, static_cast<std::size_t>(x.numel()));
  const std::int64_t pixels = latent[2] * latent[3];
  double difference = 0, largest = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t channel = i / (latent[0] * pixels), frame = i / pixels % latent[0];
    const double mine = x.data<float>()[(frame * latent[1] + channel) * pixels + i % pixels];
    const double expected = std::bit_cast<float>(words[static_cast<std::size_t>(i)]);
    difference = std::max(difference, std::abs(mine - expected));
    largest = std::max(largest, std::abs(expected));
  }
  return difference / largest;
}

template <class T>
std::vector<T> numbers(const std::string& line) {
  std::istringstream in(line);
  std::vector<T> values;
  for (T value; in >> value;) values.push_back(value);
  return values;
}

// Calls step(i), which updates x, and compares x with the lines from `at` on.
template <class F>
void follow(const std::vector<std::string>& lines, std::size_t& at, int calls, const Tensor& x,
            F&& step) {
  for (int i = 0; i < calls; ++i) {
    step(i);
    if (i < 3 || i + 1 == calls) {
      EXPECT_LT(error_against(x, lines.at(at++)), 2e-6) << "after call " << i;
    }
  }
}

TEST(OpenSoraSamplers, TakeTheStepsOfTheReference) {
  const std::vector<std::string> lines = reference_lines("open_sora_trajectories.txt");
  int runs = 0;
  for (std::size_t at = 0; at < lines.size(); ++runs) {
    std::istringstream in(lines[at]);
    SCOPED_TRACE(lines[at++]);
    std::string kind;
    int steps = 0, calls = 0;
    in >> kind >> steps >> calls;
    TorchGenerator generator(3), answers(7);
    Tensor x = drawn(generator, latent, 1);
    std::vector<Tensor> history;
    if (kind == "iddpm") {
      const Iddpm sampler({}, steps);
      ASSERT_EQ(sampler.calls(), calls);
      EXPECT_EQ(sampler.timesteps(), numbers<std::int64_t>(lines.at(at++)));
      follow(lines, at, calls, x, [&](int i) {
        sampler.step(i, predicted(answers, 3), x, history, [&](std::span<float> box) {
          fill_noise_by_channel(generator, latent, none, latent, 2, box.data());
        });
      });
    } else {
      RectifiedFlowConfig config;
      VideoSize size;
      in >> config.use_timestep_transform >> config.use_discrete_timesteps >> size.height >>
          size.width >> size.frames;
      ASSERT_TRUE(in);
      const RectifiedFlow sampler(config, steps, size);
      ASSERT_EQ(sampler.calls(), calls);
      const auto timesteps = numbers<float>(lines.at(at++));
      for (std::size_t i = 0; i < timesteps.size(); ++i) {
        EXPECT_NEAR(sampler.timesteps().at(i), timesteps[i], 1e-6F * timesteps[i]) << i;
      }
      follow(lines, at, calls, x,
             [&](int i) { sampler.step(i, predicted(answers, 4), x, history, {}); });
    }
  }
  EXPECT_EQ(runs, 10);
}

// A box of the latents, with a generator of its own, as on one of several ranks.
TEST(OpenSoraSamplers, GiveABoxTheBitsOfTheWhole) {
  const auto run = [](const Shape& offset, const Shape& extent) {
    const Iddpm sampler({}, 5);
    TorchGenerator generator(3);
    Tensor x = Tensor::empty(extent, DType::float32);
    std::vector<Tensor> history;
    fill_noise_by_channel(generator, latent, offset, extent, 1, x.data<float>());
    for (int i = 0; i < sampler.calls(); ++i) {
      Tensor prediction = Tensor::empty({extent[0], 8, extent[2], extent[3]}, DType::float32);
      for (float& value : prediction.span<float>()) value = 0.25F;
      sampler.step(i, prediction, x, history, [&](std::span<float> box) {
        fill_noise_by_channel(generator, latent, offset, extent, 2, box.data());
      });
    }
    return x;
  };
  const Tensor whole = run(none, latent);
  const Shape offset{1, 0, 1, 2}, extent{2, 4, 1, 3};
  const Tensor part = run(offset, extent);
  for (std::int64_t i = 0; i < part.numel(); ++i) {
    const std::int64_t t = i / 12 + 1, c = i / 3 % 4, column = i % 3 + 2;
    EXPECT_EQ(part.data<float>()[i], whole.data<float>()[((t * 4 + c) * 2 + 1) * 5 + column]);
  }
  EXPECT_NO_THROW(run(none, {0, 4, 2, 5}));
}

TEST(GuideChannels, LeavesTheOthersToThePrompt) {
  const Tensor uncond = Tensor::of({1.0F, 2.0F, 3.0F, 4.0F}, {2, 2, 1, 1});
  Tensor cond = Tensor::of({2.0F, 5.0F, 5.0F, 7.0F}, {2, 2, 1, 1});
  guide_channels(7.0, 1, uncond, cond);
  EXPECT_THAT(cond.span<float>(), testing::ElementsAre(8.0F, 5.0F, 17.0F, 7.0F));
  EXPECT_THROW(guide_channels(7.0, 3, uncond, cond), Error);
}

TEST(OpenSoraSamplers, RefuseWhatTheyCannotDo) {
  const auto status = [](auto&& make, const char* word) {
    try {
      make();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(word));
      return error.status();
    }
    return Status::ok;
  };
  EXPECT_EQ(status([] { Iddpm({}, 1); }, "sample.steps"), Status::usage);
  EXPECT_EQ(status([] { Iddpm({}, 1001); }, "sample.steps"), Status::usage);
  EXPECT_EQ(status([] { Iddpm({.beta_end = 2}, 10); }, "beta_end"), Status::data);
  EXPECT_EQ(status([] { Iddpm({.guided_channels = 0}, 10); }, "cfg_channel"), Status::data);
  const VideoSize size{64, 64, 17};
  EXPECT_EQ(status([&] { RectifiedFlow({}, 0, size); }, "sample.steps"), Status::usage);
  EXPECT_EQ(status([&] { RectifiedFlow({.num_timesteps = 0}, 1, size); }, "num_timesteps"),
            Status::data);
  // 16 frames count as 0 latent frames, which would make the shift 0.
  EXPECT_EQ(status(
                [] {
                  RectifiedFlow({.use_timestep_transform = true}, 30, {64, 64, 16});
                },
                "17"),
            Status::usage);
  Tensor x = Tensor::zeros(latent, DType::float32);
  std::vector<Tensor> history;
  EXPECT_THROW(Iddpm({}, 4).step(0, x, x, history, [](std::span<float>) {}), Error);
  EXPECT_THROW(RectifiedFlow({}, 4, size)
                   .step(0, Tensor::zeros({3, 3, 2, 5}, DType::float32), x, history, {}),
               Error);
}

}  // namespace
}  // namespace reelmesh
