#include "pipeline/clip.hpp"

#include "base/log.hpp"
#include "models/cogvideox/decoder.hpp"

namespace reelmesh::pipeline {
namespace {

constexpr std::int64_t pixels_per_latent = 8;

}  // namespace

Encoded encode_text(const Tokenizer& tokenizer, const std::string& text, std::int64_t limit,
                    int clip, const char* what) {
  Encoded encoded = tokenizer.encode(text, limit);
  if (!encoded.cut.empty()) {
    log::warning("clip {}: the {} is longer than {} tokens; these words are cut off: '{}'", clip,
                 what, limit, encoded.cut);
  }
  return encoded;
}

Encoded encode_prompt(const Tokenizer& tokenizer, const ClipRequest& request,
                      const std::string& text, std::int64_t limit, int clip) {
  if (request.token_ids.empty()) return encode_text(tokenizer, text, limit, clip, "prompt");
  return tokenizer.accept(request.token_ids, limit, request.where + ": token_ids");
}

void check_size(const char* option, int clip, std::int64_t value, std::int64_t multiple) {
  require(value > 0 && value % multiple == 0, Status::usage,
          "{}: clip {} has {}, and a multiple of {} is expected (8 pixels a latent, {} latents a "
          "token)",
          option, clip, value, multiple, multiple / pixels_per_latent);
}

Shape Clip::grid(const ops::Patch& patch) const {
  return {latent_frames / patch.frames, latent_height / patch.rows, latent_width / patch.columns};
}

DenoiseSizes Clip::sizes(const CogVideoXConfig& transformer, DType dtype) const {
  const ops::Patch& patch = transformer.patch;
  return {grid(patch),
          static_cast<std::int64_t>(branches.front().size()),
          static_cast<std::int64_t>(branches.size()),
          transformer.heads,
          transformer.head_channels,
          transformer.layers,
          size_of(dtype),
          transformer.out_channels * patch.frames * patch.rows * patch.columns};
}

ClipShapes Clip::shapes(const Job& job, const CogVideoXFolder& model) const {
  ClipShapes shapes;
  if (job.keep_video) {
    shapes.video = {decoded_frames(kept_frames()), latent_height * pixels_per_latent,
                    latent_width * pixels_per_latent, 3};
  }
  if (job.keep_latents) {
    shapes.latents = {kept_frames(), model.transformer.in_channels, latent_height, latent_width};
  }
  if (job.keep_embeddings) {
    const Shape embeds{model.transformer.max_text_tokens, model.transformer.text_channels};
    shapes.prompt_embeds = embeds;
    if (branches.size() > 1) shapes.negative_prompt_embeds = embeds;
  }
  return shapes;
}

std::vector<Clip> resolve_clips(const Job& job, const CogVideoXFolder& model,
                                const Tokenizer& tokenizer) {
  const CogVideoXConfig& c = model.transformer;
  require(tokenizer.vocabulary_size() <= model.text_encoder.vocab_size, Status::data,
          "{}: the tokenizer has {} ids and the text encoder's embedding {} rows",
          model.paths.root.string(), tokenizer.vocabulary_size(), model.text_encoder.vocab_size);
  const SamplerKind sampler =
      job.scheduler ? sampler_kind_of_option(*job.scheduler) : model.sampler;
  std::vector<Clip> clips;
  for (const ClipRequest& request : job.clips) {
    const int index = static_cast<int>(clips.size());
    const std::int64_t height =
        given(request.height, job.height, c.sample_height * pixels_per_latent);
    const std::int64_t width = given(request.width, job.width, c.sample_width * pixels_per_latent);
    const std::int64_t frames = given(request.frames, job.frames, c.sample_frames);
    check_size("sample.height", index, height, pixels_per_latent * c.patch.rows);
    check_size("sample.width", index, width, pixels_per_latent * c.patch.columns);

    Clip clip;
    clip.size = {height, width, frames};
    clip.sampler = sampler;
    clip.dynamic_guidance = job.dynamic_guidance;
    clip.latent_height = height / pixels_per_latent;
    clip.latent_width = width / pixels_per_latent;
    const std::int64_t asked = (frames - 1) / c.temporal_compression + 1;
    clip.latent_frames = (asked + c.patch.frames - 1) / c.patch.frames * c.patch.frames;
    clip.dropped_frames = clip.latent_frames - asked;
    const Shape grid = clip.grid(c.patch);
    require(!c.linear_patch || (grid[1] <= c.sample_height / c.patch.rows &&
                                grid[2] <= c.sample_width / c.patch.columns),
            Status::usage,
            "sample.height, sample.width: clip {} has {} x {} pixels, and this checkpoint's "
            "positions end at {} x {}",
            index, height, width, c.sample_height * pixels_per_latent,
            c.sample_width * pixels_per_latent);

    ClipRecord& record = clip.record;
    record.index = index;
    record.prompt = request.prompt;
    record.negative_prompt = request.negative_prompt;
    record.seed = request.seed.value_or(job.seed + static_cast<std::uint64_t>(index));
    record.steps = given(request.steps, job.steps, 50);
    record.guidance = given(request.guidance, job.guidance, 6.0);
    record.fps = given(request.fps, job.fps, model.default_fps());
    record.model = model.paths.root.string();
    record.scheduler =
        sampler == SamplerKind::ddim ? "CogVideoXDDIMScheduler" : "CogVideoXDPMScheduler";
    record.dtype = std::string(name_of(job.dtype));
    record.token_ids =
        encode_prompt(tokenizer, request, request.prompt, c.max_text_tokens, index).ids;
    // Guidance of at most 1 needs no unconditional branch.
    if (record.guidance > 1) {
      clip.branches.push_back(encode_text(tokenizer, request.negative_prompt, c.max_text_tokens,
                                          index, "negative prompt")
                                  .ids);
    }
    clip.branches.push_back(record.token_ids);
    (void)Schedule(model.scheduler, record.steps);  // refuses impossible numbers of steps now
    clips.push_back(std::move(clip));
  }
  return clips;
}

}  // namespace reelmesh::pipeline
