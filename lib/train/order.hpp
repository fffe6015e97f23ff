#pragma once
// Which sample is next, and its random numbers: the same for every number of ranks, and those of
// PyTorch's CPU generator.
#include <cstdint>
#include <optional>
#include <vector>

#include "layout/layout.hpp"
#include "sampler/training_noise.hpp"

namespace reelmesh {

/// The order of the samples in one epoch: that of the data, or with `shuffle` torch.randperm(count,
/// generator=torch.Generator().manual_seed(seed)). seed: train.seed + number of the epoch.
std::vector<std::int64_t> epoch_order(std::int64_t count, std::uint64_t seed, bool shuffle);

/// Which samples a step has: all of one bucket. The epochs, each in epoch_order(), make a sequence;
/// its samples gather by bucket, and those of a bucket become a step when they are as many as a
/// batch. So samples are left over from one epoch to the next, and none is left out. With one
/// bucket sample n of the run is that at place n % count of epoch n / count.
class StepOrder {
 public:
  /// bucket_of: of each sample of the data, which are at least one. seed: train.seed.
  StepOrder(std::vector<std::size_t> bucket_of, std::int64_t batch, std::uint64_t seed,
            bool shuffle);
  /// The samples of a step, from 0, in their order. Fast if steps ascend; otherwise the sequence
  /// begins anew.
  const std::vector<std::size_t>& samples(std::int64_t step);

 private:
  void advance();
  std::vector<std::size_t> bucket_of_;
  std::size_t batch_;
  std::uint64_t seed_;
  bool shuffle_;
  std::int64_t step_ = -1;                      // that of samples_
  std::int64_t next_ = 0;                       // of the sequence
  std::vector<std::int64_t> epoch_;             // in which it is
  std::vector<std::vector<std::size_t>> left_;  // of each bucket
  std::vector<std::size_t> samples_;
};

/// What is drawn for a sample beside noise.
struct SampleDraws {
  double timestep = 0;         ///< as TrainingNoise draws it
  bool drops_caption = false;  ///< the caption is replaced by the empty one
  // Of models that take an image.
  bool drops_image = false;  ///< all latents of it are zeros
  float image_noise = 0;     ///< standard deviation of the noise that is added to its pixels
};

/// The random numbers of one sample, drawn in this order: timestep, caption's dropout, for models
/// that take an image its dropout and noise level, posterior noise (if latents are drawn from the
/// posterior), noise, and then for the image that of its pixels and of its posterior. All ranks
/// draw the same arrays, and each keeps its box. Latents are [frame, channel, row, column].
class SampleRandom {
 public:
  /// For sample n of the run: torch.Generator().manual_seed(seed + n). caption_dropout,
  /// image_dropout: probabilities; the latter only of models that take an image.
  SampleRandom(std::uint64_t seed, std::int64_t n, const TrainingNoise& noise,
               double caption_dropout, bool samples_posterior,
               std::optional<double> image_dropout = {});
  /// For validation with clip `clip`: torch.Generator().manual_seed(seed + 2³¹ + 4 · clip +
  /// quarter), of which no timestep, dropout or noise level is drawn. PyTorch seeds with 32 bits,
  /// so no sample of the first 2³¹ of a run has the same noise. seed: train.seed.
  static SampleRandom of_validation(std::uint64_t seed, std::int64_t clip, int quarter,
                                    const TrainingNoise& noise);

  const SampleDraws& draws() const { return draws_; }

  /// Normal noise for mean + std · noise, drawn in the shape `latents`: the box of it, float32 on
  /// the host. To be called once, before noise(); Error(internal) unless samples_posterior.
  Tensor posterior(const Shape& latents, const Box& box);

  /// The noise that is added: of latents that have `padding` more frames in front. Drawn in the
  /// shape `latents`, then for the padding. box: of the padded array → float32 on the host. To be
  /// called once, after posterior() if samples_posterior.
  Tensor noise(const Shape& latents, std::int64_t padding, const Box& box);

  /// Normal noise of pixels [row, column, 3] of the image, drawn in the shape [3, row, column]: the
  /// box of it, float32 on the host. To be called once, after noise(), or not.
  Tensor pixel_noise(const Shape& pixels, const Box& box);
  /// That for the posterior of the image's latents, as posterior(). To be called once, after
  /// pixel_noise(); zeros unless samples_posterior.
  Tensor image_posterior(const Shape& latents, const Box& box);

 private:
  enum class Next { posterior, noise, pixel_noise, image_posterior, nothing };
  SampleRandom(std::uint64_t seed, bool samples_posterior);
  Tensor normal(const Shape& latents, const Box& box);

  TorchGenerator generator_;
  SampleDraws draws_;
  bool samples_posterior_;
  Next next_;
};

/// What is drawn once for a sample of the data: torch.Generator().manual_seed(seed + 3 · 2³⁰ +
/// entry). seed: train.seed; entry: its number in the list, with those that cannot be used.
TorchGenerator data_random(std::uint64_t seed, std::int64_t entry);

/// Validation computes the loss of a clip at this many timesteps, always with the same noise.
inline constexpr int validation_quarters = 4;
/// Of so many timesteps, the middle of a quarter of them: 125, 375, 625, 875 of 1000.
constexpr std::int64_t validation_timestep(int quarter, std::int64_t timesteps) {
  return (2 * quarter + 1) * timesteps / (2 * validation_quarters);
}

}  // namespace reelmesh
