#include "train/steps.hpp"

#include <algorithm>
#include <cmath>

#include "base/stop.hpp"
#include "base/trace.hpp"
#include "comm/group_values.hpp"
#include "models/common/gaussian_encoder.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh::train {
namespace {

// The frames of an array that has `padding` more frames in front, each a copy of the first: those
// of a box of the padded array, from the box `kept` of the array without padding.
Tensor padded_frames(const Tensor& values, const Box& kept, const Box& box, std::int64_t padding) {
  if (padding == 0) return values;
  Tensor out = Tensor::empty(box.extent, DType::float32);
  for (std::int64_t i = 0; i < box.extent[0]; ++i) {
    const std::int64_t frame = std::max<std::int64_t>(0, box.offset[0] + i - padding);
    out.rows(i, 1).copy_from(values.rows(frame - kept.offset[0], 1));
  }
  return out;
}

// The box without padding that padded_frames() needs.
Box without_padding(Box box, std::int64_t padding) {
  const std::int64_t first = std::max<std::int64_t>(0, box.offset[0] - padding);
  const std::int64_t end = std::max<std::int64_t>(first + 1, box.end(0) - padding);
  box.offset[0] = first;
  box.extent[0] = end - first;
  return box;
}

// Of each sample that is learned from.
std::vector<std::size_t> buckets_of(const Samples& samples) {
  std::vector<std::size_t> buckets;
  for (std::int64_t i = 0; i < samples.learned; ++i) {
    buckets.push_back(samples.usable[static_cast<std::size_t>(i)].bucket);
  }
  return buckets;
}

SampleFile opened(const CachedSample& expected) {
  std::string problem;
  auto found = SampleFile::open(expected, problem);
  require(found.has_value(), Status::io, "{}: {}, expected what was there when the job began",
          expected.path.string(), problem.empty() ? "not found" : problem);
  return std::move(*found);
}

}  // namespace

Steps::Steps(const comm::Group& world, const Samples& samples, const CachedFiles& files,
             const TrainSettings& settings, const pipeline::Computing& computing)
    : world_(world),
      samples_(samples),
      files_(files),
      settings_(settings),
      computing_(computing),
      order_(buckets_of(samples), settings.batch, settings.seed, settings.data.shuffle) {
  const Plan& plan = samples.planned.plan;
  const std::vector<RankRange>& ranges = plan.roles.denoise;
  const auto own = std::ranges::find_if(
      ranges, [&](const RankRange& range) { return range.contains(world.rank()); });
  const bool member = own != ranges.end();
  replica_ = member ? static_cast<std::size_t>(own - ranges.begin()) : 0;
  group_ = world.split(member ? static_cast<int>(replica_) : -1).connected();
  peers_ = world.split(member ? world.rank() - own->first : -1);
  trainers_ = world.split(member ? 0 : -1);
  if (!member) return;
  set_size_of(0);
  const Family& family = *samples.planned.family;
  {
    const trace::Scope scope(trace::spans::load);
    const PurposeScope purpose(Purpose::weights);
    const WeightPlacement placement{
        .residence = plan.weights.residence,
        .group = group_,
        .shares = plan.weights.shares.empty() ? RankWeights{} : plan.weights.shares[replica_],
        .unlike_processors = samples.planned.unlike_processors,
        .resident = plan.weights.resident};
    model_ = family.trainable(computing.weights(family, ModelPart::transformer), computing.dtype,
                              placement, training_mode(*samples.planned.train));
    if (family.image_scale()) {
      encoder_ = family.encoder(computing.weights(family, ModelPart::vae), computing.dtype);
    }
  }
  const trace::Scope scope(trace::spans::load);
  own_.emplace(*model_, task(), peers_, settings,
               ImageEncoding{encoder_.get(), family.image_scale().value_or(1)});
}

void Steps::set_size_of(std::size_t sample) {
  const JobPlan& planned = samples_.planned;
  bucket_ = samples_.usable[sample].bucket;
  noise_ = &samples_.buckets[bucket_].noise;
  clip_ = samples_.clip(sample);
  layout_ = planned.clip_plan(clip_, planned.plan).denoise[replica_];
}

void Steps::use_size_together(std::size_t sample) {
  if (samples_.usable[sample].bucket == bucket_) return;
  set_size_of(sample);
  own_->prepare(task());
}

DenoiseTask Steps::task() const {
  return {.group = group_,
          .layout = layout_,
          .latents = clip_.latents,
          .branches = 1,
          .size = clip_.format.size,
          .fps = clip_.fps(),
          .image_rows = clip_.image_rows()};
}

TrainingSample Steps::prepare_together(std::int64_t number, std::size_t which) const {
  std::optional<double> image_dropout;
  if (encoder_ != nullptr) image_dropout = settings_.image_dropout;
  SampleRandom random(settings_.seed, number, *noise_, settings_.caption_dropout,
                      settings_.samples_posterior, image_dropout);
  const SampleFile file = opened(files_.videos[which]);
  const std::int64_t padding = clip_.dropped_frames;
  const Shape& shape = files_.videos[which].shapes.latent_mean;
  const Box box = own_latents();
  const Box kept = box.empty() ? box : without_padding(box, padding);
  Tensor x = Tensor::empty(kept.extent, DType::float32);
  if (settings_.samples_posterior) {
    const Tensor drawn = random.posterior(shape, kept);
    if (!box.empty()) {
      const Tensor mean = file.read(&SampleShapes::latent_mean, kept);
      const Tensor deviation = file.read(&SampleShapes::latent_std, kept);
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        x.data<float>()[i] =
            mean.data<float>()[i] + deviation.data<float>()[i] * drawn.data<float>()[i];
      }
    }
  } else if (!box.empty()) {
    x = file.read(&SampleShapes::latent_mean, kept);
  }
  TrainingSample sample = with_noise(which, random.draws(), x, random.noise(shape, padding, box));
  sample.number = number;
  sample.weight = noise_->weight(sample.timestep);
  set_image_together(file, random, sample);
  return sample;
}

TrainingSample Steps::prepare_validation_together(std::size_t which, int quarter) const {
  const SampleFile file = opened(files_.videos[which]);
  const std::int64_t padding = clip_.dropped_frames;
  const Box box = own_latents();
  const Tensor mean = box.empty()
                          ? Tensor::empty(box.extent, DType::float32)
                          : file.read(&SampleShapes::latent_mean, without_padding(box, padding));
  SampleRandom random =
      SampleRandom::of_validation(settings_.seed, samples_.usable[which].index, quarter, *noise_);
  TrainingSample sample =
      with_noise(which, random.draws(), mean,
                 random.noise(files_.videos[which].shapes.latent_mean, padding, box));
  set_image_together(file, random, sample);
  return sample;
}

void Steps::set_image_together(const SampleFile& file, SampleRandom& random,
                               TrainingSample& sample) const {
  const SampleShapes& shapes = file.shapes();
  if (!shapes.image_latents.empty()) {
    const Box box = own_latents();
    sample.image = box.empty() ? Tensor::empty(box.extent, DType::float32)
                               : file.read(&SampleShapes::image_latents, box);
  }
  if (!shapes.image_rows.empty()) {
    sample.vision =
        file.read(&SampleShapes::image_rows, whole_box(shapes.image_rows)).to(computing_.dtype);
  }
  if (encoder_ == nullptr) return;
  const SampleDraws& draws = random.draws();
  if (draws.drops_image) {
    sample.image = Tensor::zeros(sample.latents.shape(), DType::float32);
    return;
  }
  const Box& own = own_box(own_->image_pixels(), group_);
  Tensor frame = file.read(&SampleShapes::first_frame, own);
  const Tensor noise = random.pixel_noise(own_->image_pixels().global(), own);
  for (std::int64_t i = 0; i < frame.numel(); ++i) {
    float& value = frame.data<float>()[i];
    value = scaled_pixel(value) + draws.image_noise * noise.data<float>()[i];
  }
  sample.image = own_->encode_image(frame, [&](const Box& box, std::span<float> values) {
    const Shape latents{1, clip_.latent_channels, clip_.latents[1], clip_.latents[2]};
    const Tensor drawn = random.image_posterior(latents, box).to(computing_.dtype);
    std::ranges::copy(drawn.to(DType::float32).span<float>(), values.begin());
  });
}

TrainingSample Steps::with_noise(std::size_t which, const SampleDraws& draws, Tensor x,
                                 const Tensor& noise) const {
  TrainingSample sample;
  sample.timestep = draws.timestep;
  sample.fps = own_fps(which);
  const std::int64_t padding = clip_.dropped_frames;
  const Box box = own_latents();
  if (!box.empty()) x = padded_frames(x, without_padding(box, padding), box, padding);
  const TrainingNoise::Mix mix = noise_->mix(sample.timestep);
  const auto scale = static_cast<float>(noise_->scaling_factor);
  for (Tensor* array : {&sample.latents, &sample.target, &sample.clean}) {
    *array = Tensor::empty(box.extent, DType::float32);
  }
  for (std::int64_t i = 0; i < noise.numel(); ++i) {
    const float value = std::as_const(x).data<float>()[i] * scale, drawn = noise.data<float>()[i];
    sample.clean.data<float>()[i] = value;
    sample.latents.data<float>()[i] = mix.signal * value + mix.spread * drawn;
    sample.target.data<float>()[i] = noise_->target(mix, value, drawn);
  }
  set_text(which, draws.drops_caption, sample);
  return sample;
}

double Steps::own_fps(std::size_t which) const {
  const bool is_own = settings_.data.own_fps && clip_.format.size.frames > 1;
  return is_own ? std::floor(samples_.usable[which].facts.fps) : 0;
}

void Steps::set_text(std::size_t which, bool drops_caption, TrainingSample& sample) const {
  const auto read = [&](std::size_t caption, const std::optional<Box>& part) {
    const SampleFile file = opened(files_.captions[caption]);
    const Box box = part.value_or(whole_box(file.shapes().prompt_embeds));
    const Tensor text = file.read(&SampleShapes::prompt_embeds, box);
    return text.to(computing_.dtype).reshape({box.extent[0], 1, box.extent[1]});
  };
  if (noise_->null_caption) {  // every rank has the caption's own tokens
    sample.text = read(which, std::nullopt);
    sample.drops_caption = drops_caption;
    return;
  }
  const Box& tokens = own_box(layout_.text, group_);
  const std::int64_t channels = samples_.text_channels();
  const Box embedding{{tokens.offset[0], 0}, {tokens.extent[0], channels}};
  sample.text = Tensor::empty({tokens.extent[0], 1, channels}, computing_.dtype);
  if (tokens.empty()) return;
  sample.text = read(drops_caption ? samples_.usable.size() : which, embedding);
}

// Over the replica.
SampleLoss Steps::loss_together(const ops::ExactSum& losses, std::size_t which,
                                double timestep) const {
  std::vector<std::int64_t> sums{losses.high, losses.middle, losses.low, losses.lost};
  const std::int64_t failed =
      group_.max(losses.lost > 0 ? std::int64_t{world_.size()} - world_.rank() : 0);
  group_.sum(sums);
  const ops::ExactSum all{sums[0], sums[1], sums[2], sums[3]};
  return {.loss = all.value() / static_cast<double>(numel(clip_.latent_shape())),
          .sample = static_cast<std::int64_t>(which),
          .timestep = timestep,
          .failed_rank = failed > 0 ? world_.size() - static_cast<int>(failed) : -1};
}

StepResult Steps::step_together(std::int64_t step) {
  const trace::Scope scope(trace::spans::train_step);
  const auto replicas = std::ssize(samples_.planned.plan.roles.denoise);
  StepResult result;
  Tensor own_sum;  // of this replica's gradients, if their order does not matter
  const std::int64_t first = step * settings_.batch, batch = settings_.batch;
  const std::vector<std::size_t>& samples = order_.samples(step);
  use_size_together(samples.front());
  for (std::int64_t round = 0; round < batch; round += replicas) {
    const std::int64_t own = round + static_cast<std::int64_t>(replica_);
    const std::int64_t in_round = std::min<std::int64_t>(replicas, batch - round);
    SampleLoss loss;
    Tensor gradient;  // of this replica's sample, if it has one
    if (own < batch) {
      const std::size_t which = samples[static_cast<std::size_t>(own)];
      const TrainingSample sample = prepare_together(first + own, which);
      const TrainingReplica::Computed computed = own_->compute(sample);
      loss = loss_together(computed.losses, which, sample.timestep);
      gradient = computed.gradient;
    }
    const std::vector<SampleLoss> of_all = comm::all_gather_value(peers_, loss);
    result.samples.insert(result.samples.end(), of_all.begin(), of_all.begin() + in_round);
    if (settings_.reproducible || replicas == 1) {
      own_->add(gradient, in_round);
    } else if (own < batch) {
      if (own_sum.empty()) own_sum = Tensor::zeros(gradient.shape(), DType::float32);
      add_to(own_sum, gradient);
    }
  }
  if (!settings_.reproducible && replicas > 1) {
    own_->add(own_sum, std::min<std::int64_t>(replicas, batch));
  }
  for (const SampleLoss& sample : result.samples) result.loss += sample.loss;
  result.loss /= static_cast<double>(batch);
  result.gradient_norm = own_->parameters().gradient_norm_together(batch);
  result.learning_rate = learning_rate(settings_, step);
  if (!std::isfinite(result.loss) || !std::isfinite(result.gradient_norm)) return result;
  own_->update(step, result.gradient_norm, batch);
  return result;
}

std::optional<ValidationResult> Steps::validate_together() {
  const trace::Scope scope(trace::spans::validate);
  const auto replicas = std::ssize(samples_.planned.plan.roles.denoise);
  const std::vector<std::size_t> clips = samples_.validating();
  const std::int64_t count = validation_quarters * std::ssize(clips);
  ValidationResult result;
  for (std::int64_t round = 0; round < count; round += replicas) {
    if (trainers_.max(std::int64_t{stop::cause()}) != stop::none) return std::nullopt;
    const std::int64_t own = round + static_cast<std::int64_t>(replica_);
    const std::int64_t in_round = std::min<std::int64_t>(replicas, count - round);
    SampleLoss loss;
    if (own < count) {
      const std::size_t which = clips[static_cast<std::size_t>(own / validation_quarters)];
      use_size_together(which);
      const TrainingSample sample =
          prepare_validation_together(which, static_cast<int>(own % validation_quarters));
      loss = loss_together(own_->losses_together(sample), which, sample.timestep);
    }
    const std::vector<SampleLoss> of_all = comm::all_gather_value(peers_, loss);
    result.samples.insert(result.samples.end(), of_all.begin(), of_all.begin() + in_round);
  }
  for (std::size_t i = 0; i < result.samples.size(); ++i) {
    result.loss[i % validation_quarters] += result.samples[i].loss;
  }
  for (double& loss : result.loss) loss /= static_cast<double>(clips.size());
  return result;
}

void Steps::write_restart(const std::filesystem::path& output, std::int64_t step,
                          const std::string& fingerprint) {
  write_training_restart(trainers_, output, step, fingerprint,
                         own_->parameters().arrays(trainers_));
}

std::int64_t Steps::read_restart(const std::filesystem::path& output,
                                 const std::string& fingerprint) {
  Parameters& parameters = own_->parameters();
  const auto step = read_training_restart(trainers_, output, fingerprint, settings_.steps,
                                          parameters.arrays(trainers_));
  if (step) parameters.gather_values_together();
  return step.value_or(0);
}

}  // namespace reelmesh::train
