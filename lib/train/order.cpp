#include "train/order.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace reelmesh {
namespace {

// Of the logarithm of the standard deviation of noise on an image's pixels, whose deviation is 0.5
// (diffusers' train_cogvideox_image_to_video_lora.py).
constexpr float mean_image_noise = -3.0F;

// The frames [begin, end) of a box, numbered from `begin`.
Box frames_between(Box box, std::int64_t begin, std::int64_t end) {
  const std::int64_t first = std::clamp(box.offset[0], begin, end);
  const std::int64_t last = std::clamp(box.end(0), begin, end);
  box.offset[0] = first - begin;
  box.extent[0] = last - first;
  return box;
}

// Noise of latents that have `padding` more frames in front, for which it is drawn afterwards.
Tensor draw_noise(TorchGenerator& generator, const Shape& latents, std::int64_t padding,
                  const Box& box) {
  expect(latents.size() == 4 && box.offset.size() == 4 && padding >= 0 && box.offset[0] >= 0 &&
             box.end(0) <= padding + latents[0],
         "noise of shape {} with {} frames of padding, box {}", latents, padding, to_string(box));
  Tensor out = Tensor::empty(box.extent, DType::float32);
  const Box own = frames_between(box, padding, padding + latents[0]);
  const Box before = frames_between(box, 0, padding);
  float* values = out.data<float>();
  fill_noise(generator, latents, own.offset, own.extent, values + before.numel());
  if (padding == 0) return out;
  Shape shape = latents;
  shape[0] = padding;
  fill_noise(generator, shape, before.offset, before.extent, values);
  return out;
}

}  // namespace

std::vector<std::int64_t> epoch_order(std::int64_t count, std::uint64_t seed, bool shuffle) {
  expect(count >= 0, "an epoch of {} samples", count);
  if (shuffle) return TorchGenerator(seed).randperm(count);
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

StepOrder::StepOrder(std::vector<std::size_t> bucket_of, std::int64_t batch, std::uint64_t seed,
                     bool shuffle)
    : bucket_of_(std::move(bucket_of)),
      batch_(static_cast<std::size_t>(batch)),
      seed_(seed),
      shuffle_(shuffle) {
  expect(!bucket_of_.empty() && batch > 0, "batches of {} of {} samples", batch, bucket_of_.size());
}

const std::vector<std::size_t>& StepOrder::samples(std::int64_t step) {
  expect(step >= 0, "step {}", step);
  if (step < step_) {
    step_ = -1;
    next_ = 0;
  }
  if (step_ < 0) left_.assign(1 + std::ranges::max(bucket_of_), {});
  while (step_ < step) advance();
  return samples_;
}

void StepOrder::advance() {
  const auto count = std::ssize(bucket_of_);
  for (;; ++next_) {
    const std::int64_t place = next_ % count;
    if (place == 0) {
      const auto epoch = static_cast<std::uint64_t>(next_ / count);
      epoch_ = epoch_order(count, seed_ + epoch, shuffle_);
    }
    const auto sample = static_cast<std::size_t>(epoch_[static_cast<std::size_t>(place)]);
    std::vector<std::size_t>& left = left_[bucket_of_[sample]];
    left.push_back(sample);
    if (left.size() < batch_) continue;
    samples_ = std::exchange(left, {});
    ++next_;
    ++step_;
    return;
  }
}

SampleRandom::SampleRandom(std::uint64_t seed, bool samples_posterior)
    : generator_(seed),
      samples_posterior_(samples_posterior),
      next_(samples_posterior ? Next::posterior : Next::noise) {}

SampleRandom::SampleRandom(std::uint64_t seed, std::int64_t n, const TrainingNoise& noise,
                           double caption_dropout, bool samples_posterior,
                           std::optional<double> image_dropout)
    : SampleRandom(seed + static_cast<std::uint64_t>(n), samples_posterior) {
  draws_.timestep = noise.draw_timestep(generator_);
  draws_.drops_caption = generator_.rand() < caption_dropout;
  if (!image_dropout) return;
  draws_.drops_image = generator_.rand() < *image_dropout;
  generator_.randn(1, [&](std::int64_t, std::span<const float> values) {
    draws_.image_noise = std::exp(mean_image_noise + 0.5F * values[0]);
  });
}

SampleRandom SampleRandom::of_validation(std::uint64_t seed, std::int64_t clip, int quarter,
                                         const TrainingNoise& noise) {
  expect(clip >= 0 && quarter >= 0 && quarter < validation_quarters, "quarter {} of clip {}",
         quarter, clip);
  const auto number = static_cast<std::uint64_t>(validation_quarters * clip + quarter);
  SampleRandom random(seed + (std::uint64_t{1} << 31) + number, false);
  random.draws_.timestep = static_cast<double>(validation_timestep(quarter, noise.timesteps));
  random.draws_.image_noise = std::exp(mean_image_noise);
  return random;
}

TorchGenerator data_random(std::uint64_t seed, std::int64_t entry) {
  return TorchGenerator(seed + (std::uint64_t{3} << 30) + static_cast<std::uint64_t>(entry));
}

Tensor SampleRandom::normal(const Shape& latents, const Box& box) {
  Tensor out = Tensor::empty(box.extent, DType::float32);
  fill_noise(generator_, latents, box.offset, box.extent, out.data<float>());
  return out;
}

Tensor SampleRandom::posterior(const Shape& latents, const Box& box) {
  expect(next_ == Next::posterior, "posterior noise is drawn once, before the noise, or not");
  next_ = Next::noise;
  return normal(latents, box);
}

Tensor SampleRandom::noise(const Shape& latents, std::int64_t padding, const Box& box) {
  expect(next_ == Next::noise, "noise is drawn once, after that of the posterior");
  next_ = Next::pixel_noise;
  return draw_noise(generator_, latents, padding, box);
}

Tensor SampleRandom::pixel_noise(const Shape& pixels, const Box& box) {
  expect(next_ == Next::pixel_noise, "noise of pixels is drawn once, after that of the latents");
  next_ = Next::image_posterior;
  const Tensor drawn = normal({pixels.at(2), pixels.at(0), pixels.at(1)},
                              {{box.offset.at(2), box.offset.at(0), box.offset.at(1)},
                               {box.extent.at(2), box.extent.at(0), box.extent.at(1)}});
  Tensor out = Tensor::empty(box.extent, DType::float32);
  const std::int64_t channels = box.extent[2], count = box.extent[0] * box.extent[1];
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) {
      out.data<float>()[i * channels + c] = std::as_const(drawn).data<float>()[c * count + i];
    }
  }
  return out;
}

Tensor SampleRandom::image_posterior(const Shape& latents, const Box& box) {
  expect(next_ == Next::image_posterior,
         "posterior noise of an image is drawn once, after that of its pixels");
  next_ = Next::nothing;
  return samples_posterior_ ? normal(latents, box) : Tensor::zeros(box.extent, DType::float32);
}

}  // namespace reelmesh
