#include "job/families/opensora.hpp"

#include "layout/space_time.hpp"
#include "models/autoencoder/decoder.hpp"
#include "models/autoencoder/encoder.hpp"
#include "models/opensora/transformer.hpp"
#include "text/clean.hpp"

namespace reelmesh {
namespace {

bool is_v3(const OpenSoraFolder& model) { return model.transformer.kind == STDiTConfig::Kind::v3; }

// The prompt as the text encoder takes it: cleaned, unless the request or the job says otherwise.
// Open-Sora 1.2 was trained with scores appended to captions; its inference script adds this one.
std::string encoder_caption(const OpenSoraFolder& model, const Job& job,
                            const ClipRequest& request) {
  const std::string& prompt = request.prompt;
  if (!request.clean.value_or(job.clean_prompts) || !request.token_ids.empty()) return prompt;
  const bool scored = prompt.find("aesthetic score:") != std::string::npos;
  return clean_caption(is_v3(model) && !scored ? prompt + " aesthetic score: 6.5." : prompt);
}

}  // namespace

void OpenSora::check_options(const Job& job) const {
  require(!job.scheduler, Status::usage,
          "sample.scheduler: found {}, expected none: Open-Sora uses the scheduler of its "
          "checkpoint, {}",
          job.scheduler.value_or(""), folder_.scheduler_name());
  require(!job.dynamic_guidance, Status::usage,
          "sample.dynamic-guidance: found yes, expected no: Open-Sora's samplers have no dynamic "
          "guidance");
  const auto only_one = [](const char* option, const std::optional<int>& ranks) {
    require(ranks.value_or(1) == 1, Status::usage,
            "{}: found {}, expected 1: Open-Sora's frames and positions are divided among the "
            "ranks of a group, whose number is parallel.ulysses",
            option, ranks.value_or(1));
  };
  only_one("parallel.cfg", job.parallel.cfg);
  only_one("parallel.ring", job.parallel.ring);
}

std::optional<CacheCoefficients> OpenSora::cache_coefficients() const {
  return known_cache_coefficients(folder_.transformer);
}

ClipDefaults OpenSora::defaults() const {
  return {.size = folder_.default_size(),
          .fps = folder_.default_fps(),
          .steps = static_cast<int>(folder_.default_steps()),
          .guidance = folder_.default_guidance()};
}

SamplingRecipe OpenSora::sampling(const Clip& clip, const Job& job) const {
  SamplingRecipe recipe;
  recipe.guidance = {constant_guidance(clip.guidance()), folder_.transformer.in_channels};
  // Open-Sora 1.0 draws noise for both branches in each step. Open-Sora 1.2 draws the initial noise
  // in the dtype that it computes in.
  recipe.noise = {.channels_first = true,
                  .arrays_in_step = 2,
                  .initial = is_v3(folder_) ? job.dtype : DType::float32,
                  .in_step = DType::float32};
  if (const auto* config = std::get_if<IddpmConfig>(&folder_.scheduler)) {
    recipe.guidance.channels = config->guided_channels;
  }
  const VideoSize& size = clip.format.size;
  recipe.sampler =
      samplers_.get({clip.steps(), size.height, size.width, size.frames},
                    [&]() -> std::shared_ptr<const Sampler> {
                      if (const auto* config = std::get_if<IddpmConfig>(&folder_.scheduler)) {
                        return std::make_shared<Iddpm>(*config, clip.steps());
                      }
                      return std::make_shared<RectifiedFlow>(
                          std::get<RectifiedFlowConfig>(folder_.scheduler), clip.steps(), size);
                    });
  return recipe;
}

void OpenSora::complete(Clip& clip, const Job& job, const ClipRequest& request,
                        const Tokenizer& tokenizer) const {
  const STDiTConfig& c = folder_.transformer;
  const std::int64_t pixels = folder_.vae.image.compression();
  require(request.negative_prompt.empty(), Status::usage,
          "prompt.negative: clip {} has '{}', expected none: Open-Sora's guidance uses the null "
          "caption of its checkpoint",
          clip.index(), request.negative_prompt);
  const auto& [height, width, frames] = clip.format.size;
  // STDiT3 pads partial patches at the edges, so that any size is accepted; height and width are
  // rounded down to whole latents.
  check_size(clip, request, is_v3(folder_) ? 1 : pixels * c.patch.rows,
             is_v3(folder_) ? 1 : pixels * c.patch.columns, pixels);
  clip.latents = {folder_.vae.latent_frames(frames), height / pixels, width / pixels};
  clip.latent_channels = c.in_channels;
  clip.video = {frames, clip.latents[1] * pixels, clip.latents[2] * pixels};
  clip.format.branches = STDiT::branches;
  const auto patches = [](std::int64_t n, std::int64_t patch) { return (n + patch - 1) / patch; };
  clip.hidden = {clip.latents[0], patches(clip.latents[1], c.patch.rows),
                 patches(clip.latents[2], c.patch.columns), STDiT::branches, c.hidden};
  clip.record.scheduler = std::string(folder_.scheduler_name());
  Encoded text = encode_prompt(tokenizer, request, encoder_caption(folder_, job, request),
                               c.max_text_tokens, clip);
  text.ids.resize(static_cast<std::size_t>(text.kept));
  clip.record.token_ids = text.ids;
  clip.texts.push_back(std::move(text.ids));
  clip.sampling = sampling(clip, job);
}

ClipWorkload OpenSora::workload(const Clip& clip, std::int64_t text_tokens) const {
  const STDiTConfig& c = folder_.transformer;
  ClipWorkload workload;
  workload.denoise = {.latents = clip.latents,
                      .patch = {1, c.patch.rows, c.patch.columns},
                      .predicted_channels = c.out_channels(),
                      .text_tokens = text_tokens,
                      .branches = STDiT::branches,
                      .heads = c.heads,
                      .head_channels = c.head_channels(),
                      .layouts = LayoutKind::frames};
  const auto& temporal = folder_.vae.temporal;
  workload.decode = {.latents = clip.latents,
                     .frames = clip.video.at(0),
                     .group_latents = temporal ? temporal->micro_latents() : 1,
                     .group_frames = temporal ? temporal->micro_frames : 1,
                     .single_images = temporal.has_value()};
  return workload;
}

// What a rank sends between two cuts of the tokens is what does not stay on it.
std::vector<std::int64_t> OpenSora::share(const DenoiseLayout& layout, int rank) const {
  const SpaceTime cuts = SpaceTime::of(layout, folder_.transformer.heads);
  const Box &frames = cuts.spatial.box(rank), &positions = cuts.temporal.box(rank);
  std::vector<std::int64_t> share = frames.extent;
  share.insert(share.end(), positions.extent.begin(), positions.extent.end());
  share.push_back(intersect(frames, positions).numel());
  if (!cuts.by_heads) return share;
  const Box &rows = cuts.by_heads->tokens.box(rank), &heads = cuts.by_heads->heads.box(rank);
  share.insert(share.end(), heads.extent.begin(), heads.extent.end());
  share.push_back(intersect(rows, heads).numel());
  return share;
}

std::unique_ptr<const Denoiser> OpenSora::denoiser(const OpenPart& open, DType dtype,
                                                   const WeightPlacement& placement,
                                                   std::int64_t layers) const {
  STDiTConfig config = folder_.transformer;
  config.layers = layers;
  return std::make_unique<STDiT>(open(ModelPart::transformer), config, dtype, placement);
}

std::unique_ptr<Trainable> OpenSora::trainable(const Checkpoint& weights, DType dtype,
                                               const WeightPlacement& placement,
                                               const TrainingMode& mode) const {
  std::optional<IddpmLoss> loss;
  if (const auto* config = std::get_if<IddpmConfig>(&folder_.scheduler)) loss.emplace(*config);
  return in_training<STDiT>(weights, folder_.transformer, dtype, placement, mode, std::move(loss));
}

// As the configurations in release 1.2 train it: times are sigmoids of normal numbers, shifted.
TrainingNoise OpenSora::training_noise(const Job&, const VideoSize& size) const {
  TrainingNoise noise{.scaling_factor = folder_.vae.latent_factor(), .null_caption = true};
  if (const auto* config = std::get_if<IddpmConfig>(&folder_.scheduler)) {
    noise.process = TrainingNoise::Process::noise;
    noise.alpha_bar = alpha_bar_table(*config);
    noise.timesteps = config->num_train_timesteps;
    return noise;
  }
  const auto& config = std::get<RectifiedFlowConfig>(folder_.scheduler);
  noise.process = TrainingNoise::Process::flow;
  noise.timesteps = config.num_timesteps;
  noise.whole_timesteps = config.use_discrete_timesteps;
  if (!noise.whole_timesteps) noise.draw = TimestepDraw::logit_normal;
  if (config.use_timestep_transform) noise.shift_ratio = shift_ratio(size);
  return noise;
}

std::unique_ptr<const Decoder> OpenSora::decoder(const Checkpoint& weights, DType dtype) const {
  return std::make_unique<OpenSoraDecoder>(weights, folder_.vae, dtype);
}

std::unique_ptr<const Encoder> OpenSora::encoder(const Checkpoint& weights, DType dtype) const {
  return std::make_unique<OpenSoraEncoder>(weights, folder_.vae, dtype);
}

}  // namespace reelmesh
