#include "train/order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <numeric>
#include <span>
#include <sstream>

#include "layout/relayout.hpp"
#include "support/data_folder.hpp"
#include "support/expect_error.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

using test::expect_error;

// The lines of tests/data/train/order.txt of one kind, without it (tools/reference/
// make_train_data.py).
std::vector<std::istringstream> reference(const std::string& kind) {
  std::ifstream file(test::data_folder() / "train" / "order.txt");
  EXPECT_TRUE(file);
  std::vector<std::istringstream> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kind + " ")) lines.emplace_back(line.substr(kind.size()));
  }
  EXPECT_FALSE(lines.empty());
  return lines;
}

// 64-bit FNV-1a, over words instead of bytes.
template <class Words>
std::uint64_t fnv(const Words& words) {
  std::uint64_t value = 0xcbf29ce484222325U;
  for (const auto word : words) value = (value ^ static_cast<std::uint64_t>(word)) * 0x100000001b3U;
  return value;
}

std::uint64_t fnv_of_bits(std::span<const float> values) {
  std::vector<std::uint32_t> words;
  for (const float value : values) words.push_back(std::bit_cast<std::uint32_t>(value));
  return fnv(words);
}

template <class Number>
Number read(std::istream& in, bool hexadecimal = false) {
  Number value{};
  in >> (hexadecimal ? std::hex : std::dec) >> value;
  EXPECT_TRUE(in);
  return value;
}

TEST(EpochOrder, IsTorchRandperm) {
  for (std::istringstream& line : reference("perm")) {
    const auto seed = read<std::uint64_t>(line);
    const auto count = read<std::int64_t>(line);
    const auto hash = read<std::uint64_t>(line, true);
    const std::vector<std::int64_t> order = epoch_order(count, seed, true);
    ASSERT_EQ(std::ssize(order), count);
    EXPECT_EQ(fnv(order), hash) << line.str();
    for (std::int64_t i = 0; i < std::min<std::int64_t>(count, 5); ++i) {
      EXPECT_EQ(order[static_cast<std::size_t>(i)], read<std::int64_t>(line)) << line.str();
    }
  }
}

TEST(EpochOrder, IsThatOfTheDataWithoutShuffle) {
  EXPECT_EQ(epoch_order(4, 42, false), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_TRUE(epoch_order(0, 42, false).empty());
}

using Samples = std::vector<std::size_t>;

// The samples of the first steps, one after the other.
Samples first_of(StepOrder& order, std::int64_t steps) {
  Samples all;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Samples& of_step = order.samples(step);
    all.insert(all.end(), of_step.begin(), of_step.end());
  }
  return all;
}

// The seed of epoch e is train.seed + e; an epoch goes on across the ends of batches.
TEST(StepOrder, OfOneBucketCountsOverEpochs) {
  for (const std::size_t count : {1U, 5U, 7U}) {
    for (const bool shuffle : {true, false}) {
      StepOrder order(Samples(count, 0), 3, 42, shuffle);
      const Samples found = first_of(order, std::int64_t(count));  // three epochs
      for (std::size_t n = 0; n < 3 * count; ++n) {
        const auto epoch = epoch_order(std::int64_t(count), 42 + n / count, shuffle);
        EXPECT_EQ(found[n], std::size_t(epoch[n % count])) << n << " of " << count;
      }
    }
  }
  // randperm(5) of the seeds 42 and 43
  StepOrder order(Samples(5, 0), 2, 42, true);
  EXPECT_EQ(first_of(order, 5), (Samples{2, 4, 3, 0, 1, 3, 1, 4, 2, 0}));
}

// Samples of a bucket keep their order, and wait until they are as many as a batch: those of the
// two buckets in randperm(5) of 42, 43: 2 4 3 0 1 | 3 1 4 2 0, with 1 and 4 in the second.
TEST(StepOrder, GathersSamplesOfOneBucket) {
  const Samples buckets{0, 1, 0, 0, 1};
  StepOrder order(buckets, 2, 42, true);
  EXPECT_EQ(order.samples(0), (Samples{2, 3}));
  EXPECT_EQ(order.samples(1), (Samples{4, 1}));
  EXPECT_EQ(order.samples(2), (Samples{0, 3}));
  EXPECT_EQ(order.samples(3), (Samples{1, 4}));
  EXPECT_EQ(order.samples(4), (Samples{2, 0}));
}

// Any step may be asked for, as by a training that goes on; over many epochs every sample is used
// equally often, except for those that wait.
TEST(StepOrder, UsesAllSamplesEquallyOften) {
  const Samples buckets{0, 2, 0, 0, 2, 1, 0, 2, 0, 0, 0};
  constexpr std::int64_t batch = 4, epochs = 40;
  const std::int64_t steps = epochs * std::ssize(buckets) / batch;
  StepOrder order(buckets, batch, 7, true);
  std::vector<std::int64_t> uses(buckets.size());
  for (std::int64_t step = 0; step < steps; ++step) {
    const Samples of_step = order.samples(step);
    ASSERT_EQ(of_step.size(), std::size_t(batch));
    for (const std::size_t sample : of_step) {
      EXPECT_EQ(buckets[sample], buckets[of_step.front()]) << "step " << step;
      ++uses[sample];
    }
    if (step % 10 == 0) {
      StepOrder other(buckets, batch, 7, true);
      EXPECT_EQ(other.samples(step), of_step) << "step " << step;
    }
  }
  // At most three of each bucket wait, and of the one bucket all three may be the same sample's.
  for (const std::int64_t count : uses) EXPECT_NEAR(double(count), double(epochs), 4);
  StepOrder again(buckets, batch, 7, true);
  const Samples last = order.samples(steps - 1);
  EXPECT_EQ(order.samples(3), again.samples(3));  // back
  EXPECT_EQ(order.samples(steps - 1), last);
}

// One sample of the reference, drawn as a whole.
struct Drawn {
  std::uint64_t seed;
  std::int64_t padding;
  Shape shape;
  bool posterior;

  explicit Drawn(std::istream& in) {
    seed = read<std::uint64_t>(in);
    padding = read<std::int64_t>(in);
    for (int axis = 0; axis < 4; ++axis) shape.push_back(read<std::int64_t>(in));
    posterior = read<int>(in) != 0;
  }
  Shape padded() const { return {shape[0] + padding, shape[1], shape[2], shape[3]}; }
};

// A sample has the seed train.seed + n.
TEST(SampleRandom, DrawsAsTorchInTheOrderOfTheSpecification) {
  for (std::istringstream& line : reference("sample")) {
    const Drawn drawn(line);
    const auto timestep = read<std::int64_t>(line);
    const double dropout = std::bit_cast<float>(read<std::uint32_t>(line, true));
    SampleRandom random(drawn.seed - 7, 7, TrainingNoise{}, dropout, drawn.posterior);
    EXPECT_EQ(random.draws().timestep, timestep) << line.str();
    EXPECT_FALSE(random.draws().drops_caption) << "the probability is not more than the number";
    const auto more = std::nextafter(dropout, 1.0);
    EXPECT_TRUE(
        SampleRandom(drawn.seed, 0, TrainingNoise{}, more, drawn.posterior).draws().drops_caption);

    const auto hash_of_posterior = read<std::uint64_t>(line, true);
    if (drawn.posterior) {
      const Tensor posterior = random.posterior(drawn.shape, whole_box(drawn.shape));
      EXPECT_EQ(fnv_of_bits(posterior.span<float>()), hash_of_posterior) << line.str();
    }
    const Tensor noise = random.noise(drawn.shape, drawn.padding, whole_box(drawn.padded()));
    ASSERT_EQ(noise.shape(), drawn.padded());
    const auto values = noise.span<float>();
    const auto own = static_cast<std::size_t>(numel(drawn.shape));
    EXPECT_EQ(fnv_of_bits(values.last(own)), read<std::uint64_t>(line, true)) << line.str();
    EXPECT_EQ(fnv_of_bits(values.first(values.size() - own)), read<std::uint64_t>(line, true))
        << line.str();
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values.last(own).front()),
              read<std::uint32_t>(line, true));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values.back()), read<std::uint32_t>(line, true));
  }
}

// The same of a model that takes an image.
TEST(SampleRandom, DrawsAsTorchForImages) {
  for (std::istringstream& line : reference("image")) {
    const Drawn drawn(line);
    const Shape pixels{8 * drawn.shape[2], 8 * drawn.shape[3], 3};
    const double dropout = std::bit_cast<float>(read<std::uint32_t>(line, true));
    const float level = std::bit_cast<float>(read<std::uint32_t>(line, true));
    const auto random_of = [&](double probability) {
      return SampleRandom(drawn.seed, 0, TrainingNoise{}, 0.5, drawn.posterior, probability);
    };
    SampleRandom random = random_of(dropout);
    EXPECT_FALSE(random.draws().drops_image) << "the probability is not more than the number";
    EXPECT_TRUE(random_of(std::nextafter(dropout, 1.0)).draws().drops_image);
    EXPECT_FLOAT_EQ(random.draws().image_noise, level) << line.str();
    if (drawn.posterior) random.posterior(drawn.shape, whole_box(drawn.shape));
    const Tensor noise = random.noise(drawn.shape, drawn.padding, whole_box(drawn.padded()));
    const auto own = static_cast<std::size_t>(numel(drawn.shape));
    EXPECT_EQ(fnv_of_bits(noise.span<float>().last(own)), read<std::uint64_t>(line, true));
    const Tensor of_pixels = random.pixel_noise(pixels, whole_box(pixels));
    ASSERT_EQ(of_pixels.shape(), pixels);
    EXPECT_EQ(fnv_of_bits(of_pixels.span<float>()), read<std::uint64_t>(line, true)) << line.str();
    const Shape image{1, drawn.shape[1], drawn.shape[2], drawn.shape[3]};
    const Tensor posterior = random.image_posterior(image, whole_box(image));
    const auto hash = read<std::uint64_t>(line, true);
    if (drawn.posterior) {
      EXPECT_EQ(fnv_of_bits(posterior.span<float>()), hash) << line.str();
    } else {
      EXPECT_EQ(std::ranges::count(posterior.span<float>(), 0.0F), numel(image));
    }
  }
}

void expect_box_of(const Tensor& whole, const Box& box, const Tensor& part) {
  Tensor expected = Tensor::empty(box.extent, DType::float32);
  copy_box(box, whole, whole_box(whole.shape()), expected, box);
  ASSERT_EQ(part.shape(), box.extent);
  EXPECT_TRUE(std::ranges::equal(part.span<float>(), expected.span<float>())) << to_string(box);
}

// Ranks cut frames, rows, or both; ranks with empty boxes and boxes of padding only too.
TEST(SampleRandom, GivesEachRankItsBox) {
  const comm::Group& world = test::world();
  const Shape shape{5, 4, 6, 10}, padded{6, 4, 6, 10};
  SampleRandom one(42, 3, TrainingNoise{}, 0.5, true);
  const Tensor posterior = one.posterior(shape, whole_box(shape));
  const Tensor noise = one.noise(shape, 1, whole_box(padded));
  for (const std::size_t axis : {0U, 2U, 3U}) {
    SampleRandom random(42, 3, TrainingNoise{}, 0.5, true);
    EXPECT_EQ(random.draws().timestep, one.draws().timestep);
    EXPECT_EQ(random.draws().drops_caption, one.draws().drops_caption);
    const Box of_latents = Layout::cut(shape, axis, world.size()).box(world.rank());
    expect_box_of(posterior, of_latents, random.posterior(shape, of_latents));
    const Box of_padded = Layout::cut(padded, axis, world.size()).box(world.rank());
    expect_box_of(noise, of_padded, random.noise(shape, 1, of_padded));
  }
  for (const Box& box : {Box{{0, 0, 2, 0}, {1, 4, 3, 10}}, Box{{0, 0, 0, 4}, {3, 4, 6, 3}},
                         Box{{1, 0, 0, 0}, {5, 4, 6, 10}}, Box{{3, 0, 0, 0}, {0, 4, 6, 10}},
                         Box{{0, 0, 6, 0}, {6, 4, 0, 10}}}) {
    SampleRandom random(42, 3, TrainingNoise{}, 0.5, true);
    random.posterior(shape, whole_box(shape));
    expect_box_of(noise, box, random.noise(shape, 1, box));
  }
  const Shape pixels{6, 10, 3};
  const Tensor of_pixels = one.pixel_noise(pixels, whole_box(pixels));
  SampleRandom random(42, 3, TrainingNoise{}, 0.5, true);
  random.posterior(shape, whole_box(shape));
  random.noise(shape, 1, whole_box(padded));
  const Box own = Layout::cut(pixels, 1, world.size()).box(world.rank());
  expect_box_of(of_pixels, own, random.pixel_noise(pixels, own));
}

// Also for whole timesteps, whose index Wan's count from the end.
TEST(TrainingNoise, DrawsTimestepsAsTorch) {
  using Process = TrainingNoise::Process;
  for (std::istringstream& line : reference("times")) {
    const auto seed = read<std::uint64_t>(line);
    TrainingNoise noise{.process = Process::flow,
                        .logit_mean = read<float>(line),
                        .logit_std = read<float>(line),
                        .whole_timesteps = false};
    const auto drawn = [&] {
      TorchGenerator generator(seed);
      return noise.draw_timestep(generator);
    };
    EXPECT_FLOAT_EQ(float(drawn()), read<float>(line)) << line.str();
    noise.draw = TimestepDraw::logit_normal;
    EXPECT_NEAR(drawn(), read<double>(line), 2e-4) << line.str();
    noise.whole_timesteps = true;
    const auto index = read<double>(line);
    EXPECT_EQ(drawn(), index) << line.str();
    noise.process = Process::flow_to_noise;
    EXPECT_EQ(drawn(), 1000 - index) << line.str();
  }
}

// Written in another form than the paper's: of SNR = ᾱ / (1 − ᾱ).
TEST(TrainingNoise, WeighsTimestepsByMinSnr) {
  using Process = TrainingNoise::Process;
  const std::vector<double> alpha_bar{0.9999, 0.9, 5.0 / 6, 0.8, 0.5, 1e-4, 0};
  for (const double gamma : {0.5, 5.0}) {
    TrainingNoise noise{.process = Process::velocity, .alpha_bar = alpha_bar};
    for (std::size_t t = 0; t < alpha_bar.size(); ++t) {
      const double alpha = alpha_bar[t], limit = gamma * (1 - alpha);
      noise.min_snr.reset();
      EXPECT_EQ(noise.weight(double(t)), 1);
      noise.min_snr = gamma;
      noise.process = Process::velocity;
      EXPECT_NEAR(noise.weight(double(t)), std::min(alpha, limit), 1e-14) << alpha;
      noise.process = Process::noise;
      EXPECT_NEAR(noise.weight(double(t)), alpha > limit ? limit / alpha : 1, 1e-12) << alpha;
    }
  }
}

TEST(Validation, HasTheMiddlesOfQuarters) {
  std::vector<std::int64_t> timesteps;
  for (int quarter = 0; quarter < validation_quarters; ++quarter) {
    timesteps.push_back(validation_timestep(quarter, 1000));
  }
  EXPECT_EQ(timesteps, (std::vector<std::int64_t>{125, 375, 625, 875}));
}

// Its values are compared with PyTorch's by the losses in steps_test.cpp.
TEST(Validation, HasItsOwnNoiseForEachClipAndTimestep) {
  const comm::Group& world = test::world();
  const Shape shape{5, 4, 6, 10}, padded{6, 4, 6, 10};
  const auto noise_of = [&](std::uint64_t seed, std::int64_t clip, int quarter, const Box& box) {
    SampleRandom random = SampleRandom::of_validation(seed, clip, quarter, TrainingNoise{});
    const SampleDraws& draws = random.draws();
    EXPECT_EQ(draws.timestep, static_cast<double>(validation_timestep(quarter, 1000)));
    EXPECT_FALSE(draws.drops_caption || draws.drops_image);
    EXPECT_FLOAT_EQ(draws.image_noise, std::exp(-3.0F));
    return random.noise(shape, 1, box);
  };
  std::vector<Tensor> all;
  for (const std::int64_t clip : {0, 1}) {
    for (int quarter = 0; quarter < validation_quarters; ++quarter) {
      all.push_back(noise_of(42, clip, quarter, whole_box(padded)));
      const Box own = Layout::cut(padded, 0, world.size()).box(world.rank());
      expect_box_of(all.back(), own, noise_of(42, clip, quarter, own));
    }
  }
  all.push_back(noise_of(43, 7, 0, whole_box(padded)));
  // That of training, of the sample with the same numbers.
  SampleRandom random(42, 0, TrainingNoise{}, 0, false);
  all.push_back(random.noise(shape, 1, whole_box(padded)));
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(std::ranges::equal(all[i].span<float>(), all[j].span<float>())) << i << j;
    }
  }
  expect_error(Status::internal, [&] { noise_of(42, 0, 4, whole_box(padded)); });
}

TEST(SampleRandom, KeepsTheOrder) {
  const Shape shape{1, 2, 2, 3};
  const Box whole = whole_box(shape);
  SampleRandom sampled(1, 0, TrainingNoise{}, 0, true);
  expect_error(Status::internal, [&] { sampled.noise(shape, 0, whole); });
  sampled.posterior(shape, whole);
  expect_error(Status::internal, [&] { sampled.posterior(shape, whole); });
  sampled.noise(shape, 0, whole);
  expect_error(Status::internal, [&] { sampled.noise(shape, 0, whole); });
  expect_error(Status::internal, [&] { sampled.image_posterior(shape, whole); });
  SampleRandom of_mode(1, 0, TrainingNoise{}, 0, false);
  expect_error(Status::internal, [&] { of_mode.posterior(shape, whole); });
  expect_error(Status::internal, [&] { of_mode.noise(shape, 0, {{0, 0, 0, 0}, {2, 2, 2, 3}}); });
}

}  // namespace
}  // namespace reelmesh
