#include "job/families/cogvideox.hpp"

#include "models/cogvideox/decoder.hpp"
#include "models/cogvideox/encoder.hpp"
#include "models/cogvideox/transformer.hpp"
#include "sampler/sampler_rows.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t pixels_per_latent = CogVideoXConfig::pixels_per_latent;

}  // namespace

// As prepare_latents of CogVideoXImageToVideoPipeline. A training does the same, unlike CogVideo's
// own, which multiplies also the images of 1.5.
std::optional<double> CogVideoX::image_scale() const {
  if (!folder_.transformer.takes_image()) return std::nullopt;
  const double factor = folder_.vae.scaling_factor;
  return folder_.vae.inverts_scale ? 1 / factor : factor;
}

// As prepare_latents of CogVideoXImageToVideoPipeline and CogVideoXVideoToVideoPipeline: only the
// former looks at invert_scale_latents. Both draw the posterior's noise in the type of the VAE.
void CogVideoX::set_encoding(Clip& clip, const Job& job) const {
  ClipInput& input = *clip.input;
  input.latent_frames = folder_.transformer.latent_frames(input.frames);
  input.scale = image_scale().value_or(folder_.vae.scaling_factor);
  input.noise = NoiseRule{.channels_first = true, .initial = job.dtype};
}

bool CogVideoX::takes(InputKind kind) const {
  return folder_.transformer.takes_image() ? kind == InputKind::image : kind != InputKind::image;
}

ClipDefaults CogVideoX::defaults() const {
  const CogVideoXConfig& c = folder_.transformer;
  return {.size = {c.sample_height * pixels_per_latent, c.sample_width * pixels_per_latent,
                   c.sample_frames},
          .fps = folder_.default_fps(),
          .steps = 50,
          .guidance = 6};
}

std::int64_t CogVideoX::made_frames(std::int64_t frames) const {
  return decoded_frames(folder_.transformer.latent_frames(frames));
}

void CogVideoX::complete(Clip& clip, const Job& job, const ClipRequest& request,
                         const Tokenizer& tokenizer) const {
  const CogVideoXConfig& c = folder_.transformer;
  ClipRecord& record = clip.record;
  const auto& [height, width, frames] = clip.format.size;
  check_size(clip, request, pixels_per_latent * c.patch.rows, pixels_per_latent * c.patch.columns,
             pixels_per_latent);
  const std::int64_t rows = height / pixels_per_latent, columns = width / pixels_per_latent;
  c.check_size(clip.format.size, clip.index());

  const std::int64_t kept = c.latent_frames(frames);
  require(clip.format.input != InputKind::video || kept % c.patch.frames == 0, Status::usage,
          "{}: clip {} uses {} frames, which are {} latent frames, expected a multiple of {} of "
          "these, for instance {} frames",
          clip.input ? clip.input->file.where : "", clip.index(), frames, kept, c.patch.frames,
          decoded_frames(std::max(kept - kept % c.patch.frames, c.patch.frames)));
  const std::int64_t denoised = (kept + c.patch.frames - 1) / c.patch.frames * c.patch.frames;
  clip.latents = {denoised, rows, columns};
  clip.dropped_frames = denoised - kept;
  clip.latent_channels = c.latent_channels();
  clip.video = {made_frames(frames), height, width};

  if (clip.input) set_encoding(clip, job);
  const int steps = clip.steps();
  const int skipped = skipped_steps(clip, request);
  const CogVideoXSampler& sampler =
      job.scheduler ? sampler_of_option(cogvideox_samplers(), *job.scheduler) : *folder_.sampler;
  const Sampling sampling = samplings_.get({sampler.option, steps, skipped, job.dtype}, [&] {
    const NoiseSchedule schedule(folder_.scheduler, steps, skipped);
    return Sampling{sampler.make(schedule), first_noise_level(schedule, job.dtype)};
  });
  clip.sampling = {
      .sampler = sampling.sampler,
      .guidance = {job.dynamic_guidance ? dynamic_guidance(clip.guidance(), steps - skipped)
                                        : constant_guidance(clip.guidance()),
                   c.out_channels},
      .noise = {.initial = job.dtype, .in_step = job.dtype},
      .first_noise = {}};
  if (clip.strength()) clip.sampling.first_noise = sampling.first_noise;
  record.scheduler = std::string(sampler.class_name);

  record.token_ids = encode_prompt(tokenizer, request, request.prompt, c.max_text_tokens, clip).ids;
  if (clip.guidance() > 1) {  // guidance of at most 1 needs no unconditional branch
    clip.texts.push_back(
        encode_text(tokenizer, request.negative_prompt, c.max_text_tokens, clip, "negative prompt")
            .ids);
  }
  clip.texts.push_back(record.token_ids);
  clip.format.branches = std::ssize(clip.texts);
  clip.hidden = {denoised / c.patch.frames, rows / c.patch.rows, columns / c.patch.columns,
                 clip.format.branches, c.channels()};
}

std::vector<double> CogVideoX::step_distances(std::span<const double> timesteps) const {
  return time_embedding_distances(folder_.paths.open(ModelPart::transformer), folder_.transformer,
                                  timesteps);
}

ClipWorkload CogVideoX::workload(const Clip& clip, std::int64_t text_tokens) const {
  const CogVideoXConfig& c = folder_.transformer;
  ClipWorkload workload;
  workload.denoise = {.latents = clip.latents,
                      .patch = {c.patch.frames, c.patch.rows, c.patch.columns},
                      .dropped_frames = clip.dropped_frames,
                      .predicted_channels = c.out_channels,
                      .text_tokens = text_tokens,
                      .branches = clip.format.branches,
                      .heads = c.heads,
                      .head_channels = c.head_channels};
  const std::int64_t kept = clip.latents.at(0) - clip.dropped_frames;
  // Frame batches are decoded one after the other and depend on earlier ones (causal convolutions),
  // so that all frames of a clip are one group.
  workload.decode = {.latents = {kept, clip.latents.at(1), clip.latents.at(2)},
                     .frames = clip.video.at(0),
                     .group_latents = kept,
                     .group_frames = clip.video.at(0)};
  return workload;
}

std::vector<std::int64_t> CogVideoX::share(const DenoiseLayout& layout, int rank) const {
  return attention_share(layout.mesh, layout.branch_rank(rank), folder_.transformer.heads,
                         {&layout.tokens, &layout.text});
}

std::unique_ptr<const Denoiser> CogVideoX::denoiser(const OpenPart& open, DType dtype,
                                                    const WeightPlacement& placement,
                                                    std::int64_t layers) const {
  CogVideoXConfig config = folder_.transformer;
  config.layers = layers;
  return std::make_unique<CogVideoXTransformer>(open(ModelPart::transformer), config, dtype,
                                                placement);
}

std::unique_ptr<Trainable> CogVideoX::trainable(const Checkpoint& weights, DType dtype,
                                                const WeightPlacement& placement,
                                                const TrainingMode& mode) const {
  return in_training<CogVideoXTransformer>(weights, folder_.transformer, dtype, placement, mode);
}

TrainingNoise CogVideoX::training_noise(const Job&, const VideoSize&) const {
  TrainingNoise noise{.alpha_bar = alpha_bar_table(folder_.scheduler),
                      .scaling_factor = folder_.vae.scaling_factor};
  noise.timesteps = std::ssize(noise.alpha_bar);
  return noise;
}

std::unique_ptr<const Encoder> CogVideoX::encoder(const Checkpoint& weights, DType dtype) const {
  return std::make_unique<CogVideoXEncoder>(weights, folder_.vae, dtype);
}

std::unique_ptr<const Decoder> CogVideoX::decoder(const Checkpoint& weights, DType dtype) const {
  return std::make_unique<CogVideoXDecoder>(weights, folder_.vae, dtype);
}

}  // namespace reelmesh
