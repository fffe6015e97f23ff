#include "pipeline/clip.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/log.hpp"
#include "base/text.hpp"

namespace reelmesh::pipeline {

std::int64_t Clip::embedding_bytes(std::int64_t channels, DType dtype) const {
  std::int64_t bytes = 0;
  for (const auto& ids : texts) bytes += std::ssize(ids) * channels * size_of(dtype);
  return bytes;
}

std::int64_t Clip::tokens() const {
  std::size_t longest = 0;
  for (const auto& ids : texts) longest = std::max(longest, ids.size());
  return static_cast<std::int64_t>(longest);
}

ClipShapes output_shapes(const Job& job, const Clip& clip, std::int64_t text_channels) {
  ClipShapes shapes;
  if (job.keep_video) {
    shapes.video = clip.video;
    shapes.video.push_back(3);
  }
  if (job.keep_latents) {
    shapes.latents = clip.latent_shape();
    shapes.latents[0] -= clip.dropped_frames;
  }
  if (job.keep_embeddings) {
    shapes.prompt_embeds = {clip.tokens(), text_channels};
    if (clip.texts.size() > 1) shapes.negative_prompt_embeds = shapes.prompt_embeds;
  }
  return shapes;
}

Clip requested_clip(const Job& job, const ClipRequest& request, int index,
                    const ClipDefaults& defaults) {
  const auto given = [](const auto& of_clip, const auto& of_job, auto otherwise) {
    return of_clip ? *of_clip : of_job ? *of_job : otherwise;
  };
  Clip clip;
  clip.format.size = {given(request.height, job.height, defaults.size.height),
                      given(request.width, job.width, defaults.size.width),
                      given(request.frames, job.frames, defaults.size.frames)};
  ClipRecord& record = clip.record;
  record.index = index;
  record.prompt = request.prompt;
  record.negative_prompt = request.negative_prompt;
  const auto offset = static_cast<std::uint64_t>(index);
  require(request.seed || job.seed <= std::numeric_limits<std::uint64_t>::max() - offset,
          Status::usage, "sample.seed: {} + {} for clip {} exceeds 64 bits", job.seed, offset,
          index);
  record.seed = request.seed.value_or(job.seed + offset);
  record.steps = given(request.steps, job.steps, defaults.steps);
  record.guidance = given(request.guidance, job.guidance, defaults.guidance);
  record.fps = given(request.fps, job.fps, defaults.fps);
  record.model = job.model.root.string();
  record.dtype = std::string(name_of(job.dtype));
  return clip;
}

Encoded encode_text(const Tokenizer& tokenizer, const std::string& text, std::int64_t limit,
                    int clip, const char* what) {
  Encoded encoded = tokenizer.encode(text, limit);
  if (!encoded.cut.empty()) {
    constexpr std::size_t max_shown = 200;
    log::warning("clip {}: the {} has more than {} tokens; cut off: '{}{}'", clip, what, limit,
                 beginning_of(encoded.cut, max_shown), encoded.cut.size() > max_shown ? "..." : "");
  }
  return encoded;
}

Encoded encode_prompt(const Tokenizer& tokenizer, const ClipRequest& request,
                      const std::string& text, std::int64_t limit, int clip) {
  if (request.token_ids.empty()) return encode_text(tokenizer, text, limit, clip, "prompt");
  return tokenizer.accept(request.token_ids, limit, request.where + ": token_ids");
}

void check_size(const char* name, const std::string& where, int clip, std::int64_t value,
                std::int64_t multiple, std::int64_t pixels_per_latent) {
  require(value > 0 && value % multiple == 0, Status::usage,
          "{}: clip {} has {}, expected a multiple of {} ({} pixels per latent, {} latents per "
          "token)",
          where.empty() ? fmt::format("sample.{}", name) : fmt::format("{}: {}", where, name), clip,
          value, multiple, pixels_per_latent, multiple / pixels_per_latent);
}

std::vector<Batch> batches_of(std::vector<Clip> clips, int max_clips) {
  const auto compatible = [](const Clip& a, const Clip& b) {
    const auto course = [](const Clip& clip) {
      return std::tuple(clip.record.fps, clip.record.steps, clip.record.guidance, clip.saved_step);
    };
    return a.format == b.format && course(a) == course(b);
  };
  std::vector<Batch> batches;
  for (Clip& clip : clips) {
    const auto room = std::ranges::find_if(batches, [&](const Batch& batch) {
      return std::ssize(batch) < max_clips && compatible(batch.front(), clip);
    });
    if (room == batches.end()) {
      batches.push_back({std::move(clip)});
    } else {
      room->push_back(std::move(clip));
    }
  }
  return batches;
}

std::int64_t steps_of(const Batch& batch) {
  return std::ssize(batch) * (batch.front().record.steps - batch.front().saved_step);
}

}  // namespace reelmesh::pipeline
