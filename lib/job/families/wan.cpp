#include "job/families/wan.hpp"

#include "models/clip/vision.hpp"
#include "models/wan/decoder.hpp"
#include "models/wan/encoder.hpp"
#include "models/wan/transformer.hpp"
#include "sampler/sampler_rows.hpp"

namespace reelmesh {

// As the authors' code: for 480p, and of TI2V-5B.
ClipDefaults Wan::defaults() const {
  if (folder_.expand_timesteps) {
    return {.size = {704, 1280, 121}, .fps = 24, .steps = 50, .guidance = 5};
  }
  return {.size = {480, 832, 81}, .fps = 16, .steps = 50, .guidance = 5};
}

// diffusers' WanVideoToVideoPipeline has one transformer, which takes no image.
bool Wan::takes(InputKind kind) const {
  const bool takes_image = folder_.transformer.takes_image();
  switch (kind) {
    case InputKind::none:
      return !takes_image;
    case InputKind::image:
      return takes_image || folder_.expand_timesteps;
    case InputKind::video:
      return !takes_image && !folder_.expand_timesteps && !folder_.boundary;
  }
  fail(Status::internal, "an input of another kind");
}

LastImage Wan::last_image() const {
  const WanConfig& c = folder_.transformer;
  if (!c.may_end_with_image()) return LastImage::never;
  return c.ends_with_image() ? LastImage::always : LastImage::optional;
}

// As prepare_latents of WanImageToVideoPipeline, which encodes a video of the image and grey
// frames, and of WanVideoToVideoPipeline. Both take the mode of the posterior.
void Wan::set_encoding(Clip& clip, std::int64_t made_frames) const {
  ClipInput& input = *clip.input;
  if (clip.format.input == InputKind::video) {
    clip.record.input_frames = input.frames = made_frames;
  }
  input.encoded_frames = made_frames;
  input.latent_frames = WanVaeConfig::latent_frames(made_frames);
  require(!input.ends_with_image() || made_frames > 1, Status::usage,
          "sample.frames: clip {} has {}, expected at least {}: it begins from one image and ends "
          "with another",
          clip.index(), clip.format.size.frames, 1 + WanVaeConfig::frames_per_latent);
}

// As WanPipeline: 16 and 18 become 17, 3 becomes 1.
std::int64_t Wan::made_frames(std::int64_t frames) const {
  constexpr std::int64_t chunk = WanVaeConfig::frames_per_latent;
  return frames % chunk == 1 ? frames : frames / chunk * chunk + 1;
}

void Wan::check_options(const Job& job) const {
  require(!job.dynamic_guidance, Status::usage,
          "sample.dynamic-guidance: found yes, expected no: Wan's samplers have no dynamic "
          "guidance");
}

// Sets the clip's shift if it is not given, and the scheduler.
SamplingRecipe Wan::sampling(Clip& clip, const Job& job, const ClipRequest& request) const {
  FlowSettings settings = folder_.scheduler.settings;
  settings.skipped = skipped_steps(clip, request);
  std::optional<double>& shift = clip.record.settings.flow_shift;
  settings.shift = shift ? *shift : settings.shift;
  shift = settings.shift;
  if (const auto& levels = clip.record.settings.noise_levels) settings.levels = levels->values();
  const FlowSampler& sampler = job.scheduler ? sampler_of_option(flow_samplers(), *job.scheduler)
                                             : *folder_.scheduler.sampler;
  clip.record.scheduler = std::string(sampler.class_name);
  const Sampling sampling = samplings_.get({sampler.option, settings, clip.steps()}, [&] {
    const float sigma = sampler.schedule(settings, clip.steps()).sigmas.front();
    return Sampling{sampler.make(settings, clip.steps()), {.signal = 1 - sigma, .noise = sigma}};
  });
  return {.sampler = sampling.sampler,
          .guidance = {guidance(clip), folder_.transformer.out_channels},
          .noise = {.channels_first = true},
          .first_noise = clip.strength() ? std::optional(sampling.first_noise) : std::nullopt,
          .holds_image = clip.input && folder_.expand_timesteps};
}

// Of two experts each has its own. Whether there is guidance at all is said by that of the first.
GuidanceScale Wan::guidance(const Clip& clip) const {
  if (!folder_.boundary) return constant_guidance(clip.guidance());
  return [boundary = *folder_.boundary, first = clip.guidance(),
          second = clip.record.settings.guidance_2.value()](double timestep) {
    return expert_of(timestep, boundary) == 0 ? first : second;
  };
}

void Wan::complete(Clip& clip, const Job& job, const ClipRequest& request,
                   const Tokenizer& tokenizer) const {
  const WanConfig& c = folder_.transformer;
  const std::int64_t pixels = folder_.vae.pixels_per_latent();
  const auto& [height, width, frames] = clip.format.size;
  check_size(clip, request, pixels * c.patch.rows, pixels * c.patch.columns, pixels);
  // Of a video the frames that fill chunks, as its encoder takes them.
  const std::int64_t made = clip.format.input == InputKind::video
                                ? WanVaeConfig::decoded_frames(WanVaeConfig::latent_frames(frames))
                                : made_frames(frames);
  clip.latents = {WanVaeConfig::latent_frames(made), height / pixels, width / pixels};
  clip.latent_channels = c.out_channels;
  clip.video = {made, height, width};
  if (clip.input && !folder_.expand_timesteps) set_encoding(clip, made);
  if (folder_.vision) clip.vision = {folder_.vision_rows(), c.vision_channels};
  clip.sampling = sampling(clip, job, request);
  const auto cleaned = [&](const std::string& text, const char* what) {
    const bool cleans = request.clean.value_or(job.clean_prompts) && request.token_ids.empty();
    return cleans ? cleaned_prompt(text, clip, what) : text;
  };
  clip.record.token_ids = encode_prompt(tokenizer, request, cleaned(request.prompt, "prompt"),
                                        WanConfig::text_tokens, clip)
                              .ids;
  if (clip.guidance() > 1) {  // guidance of at most 1 needs no unconditional branch
    constexpr const char* what = "negative prompt";
    clip.texts.push_back(encode_text(tokenizer, cleaned(request.negative_prompt, what),
                                     WanConfig::text_tokens, clip, what)
                             .ids);
  }
  clip.texts.push_back(clip.record.token_ids);
  clip.format.branches = std::ssize(clip.texts);
  clip.hidden = {clip.latents[0], clip.latents[1] / c.patch.rows, clip.latents[2] / c.patch.columns,
                 clip.format.branches, c.channels()};
}

std::vector<double> Wan::step_distances(std::span<const double> timesteps) const {
  return time_embedding_distances(folder_.paths.open(ModelPart::transformer), folder_.transformer,
                                  timesteps);
}

ClipWorkload Wan::workload(const Clip& clip, std::int64_t text_tokens) const {
  const WanConfig& c = folder_.transformer;
  ClipWorkload workload;
  workload.denoise = {.latents = clip.latents,
                      .patch = {1, c.patch.rows, c.patch.columns},
                      .predicted_channels = c.out_channels,
                      .text_tokens = text_tokens,
                      .branches = clip.format.branches,
                      .heads = c.heads,
                      .head_channels = c.head_channels,
                      .layouts = LayoutKind::mesh_whole_text};
  // A frame depends on all earlier ones (causal convolutions), so that all are one group.
  workload.decode = {.latents = clip.latents,
                     .frames = clip.video.at(0),
                     .group_latents = clip.latents.at(0),
                     .group_frames = clip.video.at(0)};
  return workload;
}

std::vector<std::int64_t> Wan::share(const DenoiseLayout& layout, int rank) const {
  return attention_share(layout.mesh, layout.branch_rank(rank), folder_.transformer.heads,
                         {&layout.tokens});
}

std::unique_ptr<const Denoiser> Wan::denoiser(const OpenPart& open, DType dtype,
                                              const WeightPlacement& placement,
                                              std::int64_t layers) const {
  WanConfig config = folder_.transformer;
  config.layers = layers;
  const auto make = [=](ModelPart part) -> std::unique_ptr<const Denoiser> {
    return std::make_unique<WanTransformer>(open(part), config, dtype, placement);
  };
  if (!folder_.boundary) return make(ModelPart::transformer);
  const auto load = [=](int expert) {
    return make(expert == 0 ? ModelPart::transformer : ModelPart::transformer_2);
  };
  return std::make_unique<Experts>(open(ModelPart::transformer).device(), *folder_.boundary,
                                   placement.experts_in_turn, load);
}

void Wan::require_trainable() const {
  require(!folder_.boundary, Status::usage,
          "model.path: {} has two transformers, which cannot be trained, expected a model with one",
          folder_.paths.root.string());
  require(last_image() != LastImage::always, Status::usage,
          "model.path: {} makes videos between a first and a last image, which cannot be trained, "
          "expected a model of Wan for text to video, or from a first image",
          folder_.paths.root.string());
}

std::unique_ptr<Trainable> Wan::trainable(const Checkpoint& weights, DType dtype,
                                          const WeightPlacement& placement,
                                          const TrainingMode& mode) const {
  require_trainable();
  return in_training<WanTransformer>(weights, folder_.transformer, dtype, placement, mode);
}

// As trainers with diffusers' FlowMatchEulerDiscreteScheduler do: one of its noise levels,
// uniformly.
TrainingNoise Wan::training_noise(const Job& job, const VideoSize& size) const {
  require_trainable();
  constexpr std::int64_t chunk = WanVaeConfig::frames_per_latent;
  const std::int64_t fewer = (size.frames - 1) / chunk * chunk + 1;
  require(made_frames(size.frames) == size.frames, Status::usage,
          "sample.frames: found {}, expected a multiple of {} and one more, for instance {} or {}",
          size.frames, chunk, fewer, fewer + chunk);
  const FlowSettings& settings = folder_.scheduler.settings;
  return {.process = TrainingNoise::Process::flow_to_noise,
          .timesteps = settings.num_train_timesteps,
          .shift_ratio = static_cast<float>(job.train->flow_shift.value_or(settings.shift))};
}

std::unique_ptr<const Encoder> Wan::encoder(const Checkpoint& weights, DType dtype) const {
  return std::make_unique<WanEncoder>(weights, folder_.vae, dtype);
}

std::optional<VisionPixels> Wan::vision_pixels() const {
  return folder_.vision ? std::optional(folder_.vision->pixels) : std::nullopt;
}

std::unique_ptr<const VisionEncoder> Wan::vision_encoder(const Checkpoint& weights,
                                                         DType dtype) const {
  return std::make_unique<ClipVision>(weights, folder_.vision->encoder, dtype);
}

std::unique_ptr<const Decoder> Wan::decoder(const Checkpoint& weights, DType dtype) const {
  return std::make_unique<WanDecoder>(weights, folder_.vae, dtype);
}

}  // namespace reelmesh
