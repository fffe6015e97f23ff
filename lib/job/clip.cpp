#include "job/clip.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.hpp"
#include "sampler/noise_schedule.hpp"
#include "store/restart.hpp"
#include "text/clean_prompt.hpp"

namespace reelmesh {

std::int64_t Clip::tokens() const {
  std::size_t longest = 0;
  for (const auto& ids : texts) longest = std::max(longest, ids.size());
  return static_cast<std::int64_t>(longest);
}

std::int64_t Clip::end_step(std::int64_t saved) const {
  const std::int64_t calls = sampling.sampler->calls();
  return stop_after ? std::min(calls, std::max<std::int64_t>(*stop_after, saved + 1)) : calls;
}

Layout encoded_pixels(const Clip& clip, const Layout& frames) {
  const VideoSize& size = clip.format.size;
  return frames.scaled(1, size.height / clip.latents[1])
      .scaled(2, size.width / clip.latents[2])
      .with_axis(3, 3);
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

namespace {

// Of CogVideoXVideoToVideoPipeline and WanVideoToVideoPipeline.
constexpr double default_strength = 0.8;

// Sets what a clip takes from the file that it begins from. settings: of request and job.
void set_input(Clip& clip, const Job& job, const ClipRequest& request, const Inputs& inputs,
               const ClipSettings& settings, ClipDefaults& defaults) {
  ClipRecord& record = clip.record;
  const InputFile file = clip_input_file(job, request);
  if (file.kind != InputKind::image) clip_last_image(job, request);  // is an error
  const bool is_video = file.kind == InputKind::video;
  require(is_video || !request.settings.strength, Status::usage,
          "{}: strength: found {}, expected it only with a video", request.where,
          request.settings.strength.value_or(0));
  if (file.kind == InputKind::none) return;
  const InputFacts& facts = inputs.at(file.path);
  clip.format.input = file.kind;
  clip.input = ClipInput{.file = file};
  record.input_hash = facts.hash;
  if (!is_video) {
    record.image = file.path.string();
    clip.input->last = clip_last_image(job, request);
    if (!clip.input->ends_with_image()) return;
    record.last_image = clip.input->last.path.string();
    record.last_image_hash = inputs.at(clip.input->last.path).hash;
    return;
  }
  record.video = file.path.string();
  record.settings.strength = settings.strength.value_or(default_strength);
  require(settings.frames.value_or(1) <= facts.frames, Status::data,
          "{}: {} has {} frames, expected at least {}, as clip {} is to have", file.where,
          file.path.string(), facts.frames, settings.frames.value_or(1), record.index);
  clip.input->frames = clip.input->encoded_frames = settings.frames.value_or(facts.frames);
  record.input_frames = clip.input->frames;
  defaults.size.frames = clip.input->frames;
  if (facts.fps > 0) defaults.fps = facts.fps;
}

}  // namespace

Clip requested_clip(const Job& job, const ClipRequest& request, int index,
                    const ClipDefaults& usual, const Inputs& inputs) {
  Clip clip;
  ClipRecord& record = clip.record;
  record.index = index;
  const ClipSettings settings = completed(request.settings, job.sample);
  ClipDefaults defaults = usual;
  set_input(clip, job, request, inputs, settings, defaults);
  const VideoSize& size = clip.format.size = {settings.height.value_or(defaults.size.height),
                                              settings.width.value_or(defaults.size.width),
                                              settings.frames.value_or(defaults.size.frames)};
  record.prompt = request.prompt;
  record.negative_prompt = request.negative_prompt;
  const std::uint64_t first_seed = job.sample.seed.value();
  const auto offset = static_cast<std::uint64_t>(index);
  require(request.settings.seed || first_seed <= std::numeric_limits<std::uint64_t>::max() - offset,
          Status::usage, "sample.seed: {} + {} for clip {} exceeds 64 bits", first_seed, offset,
          index);
  record.settings = {.height = size.height,
                     .width = size.width,
                     .frames = size.frames,
                     .fps = settings.fps.value_or(defaults.fps),
                     .steps = settings.steps.value_or(
                         settings.noise_levels ? settings.noise_levels->steps() : defaults.steps),
                     .guidance = settings.guidance.value_or(defaults.guidance),
                     .guidance_2 = settings.guidance_2,
                     .strength = record.settings.strength,
                     .flow_shift = settings.flow_shift,
                     .noise_levels = settings.noise_levels,
                     .cache = settings.cache,
                     .cache_coefficients = settings.cache_coefficients,
                     .seed = request.settings.seed.value_or(first_seed + offset)};
  std::optional<StepCache>& cache = record.settings.cache;
  if (cache && cache->rule == StepCache::Rule::none) cache.reset();
  if (!cache || cache->rule != StepCache::Rule::teacache) {
    record.settings.cache_coefficients.reset();
  }
  clip.format.keeps_residual = cache.has_value();
  clip.stop_after = job.stop_after;
  record.model = job.model.root.string();
  record.dtype = std::string(name_of(job.dtype));
  return clip;
}

std::string input_text(const Clip& clip, const InputFacts& facts) {
  const InputFile& file = clip.input->file;
  const VideoSize& size = clip.format.size;
  std::string text = fmt::format("{}: {}: ", file.where, file.path.string());
  if (file.kind == InputKind::video) {
    text += fmt::format("{} frames of ", facts.frames);
  }
  text += fmt::format("{} x {} pixels (width x height)", facts.width, facts.height);
  if (file.kind == InputKind::video) {
    text += facts.fps > 0 ? fmt::format(", {:.5g} frames per second", facts.fps)
                          : ", without a usable rate";
    text += fmt::format("; {} of them used", clip.input->frames == facts.frames
                                                 ? "all"
                                                 : fmt::format("the first {}", clip.input->frames));
  }
  if (facts.height != size.height || facts.width != size.width) {
    text += fmt::format(", resized to {} x {}", size.width, size.height);
  }
  return text;
}

std::string cleaned_prompt(const std::string& text, Clip& clip, const char* what) {
  CleanPrompt cleaned = clean_prompt(text);
  if (!cleaned.suspect.empty()) {
    clip.warnings.push_back(fmt::format(
        "clip {}: the {} has text that seems to be decoded with a wrong encoding, which is used as "
        "it is, though diffusers repairs it: '{}'",
        clip.index(), what, cleaned.suspect));
  }
  return std::move(cleaned.text);
}

Encoded encode_text(const Tokenizer& tokenizer, const std::string& text, std::int64_t limit,
                    Clip& clip, const char* what) {
  Encoded encoded = tokenizer.encode(text, limit);
  if (!encoded.cut.empty()) {
    constexpr std::size_t max_shown = 200;
    clip.warnings.push_back(fmt::format(
        "clip {}: the {} has more than {} tokens; cut off: '{}{}'", clip.index(), what, limit,
        text_prefix(encoded.cut, max_shown), encoded.cut.size() > max_shown ? "..." : ""));
  }
  return encoded;
}

Encoded encode_prompt(const Tokenizer& tokenizer, const ClipRequest& request,
                      const std::string& text, std::int64_t limit, Clip& clip) {
  if (request.token_ids.empty()) return encode_text(tokenizer, text, limit, clip, "prompt");
  return tokenizer.accept(request.token_ids, limit, request.where + ": token_ids");
}

int skipped_steps(const Clip& clip, const ClipRequest& request) {
  const int steps = clip.steps();
  const int skipped = clip.strength() ? skipped_steps(steps, *clip.strength()) : 0;
  require(skipped < steps, Status::usage,
          "{}: found {} for clip {}, which leaves none of {} steps, expected at least {:.3f}",
          request.settings.strength ? request.where + ": strength" : "sample.strength",
          clip.strength().value_or(1), clip.index(), steps, std::ceil(1000.0 / steps) / 1000);
  return skipped;
}

void check_size(const Clip& clip, const ClipRequest& request, std::int64_t height_multiple,
                std::int64_t width_multiple, std::int64_t pixels_per_latent) {
  const auto check = [&](const char* name, const auto& given, std::int64_t value,
                         std::int64_t multiple) {
    const std::int64_t below = std::max<std::int64_t>(value, 0) / multiple * multiple;
    require(value > 0 && value % multiple == 0, Status::usage,
            "{}: clip {} has {}, expected a multiple of {} ({} pixels per latent, {} latents per "
            "token), for instance {}{}",
            given ? fmt::format("{}: {}", request.where, name) : fmt::format("sample.{}", name),
            clip.index(), value, multiple, pixels_per_latent, multiple / pixels_per_latent,
            below > 0 ? fmt::format("{} or ", below) : "", below + multiple);
  };
  check("height", request.settings.height, clip.format.size.height, height_multiple);
  check("width", request.settings.width, clip.format.size.width, width_multiple);
}

namespace {

auto shapes_of(const Clip& clip) {
  return std::tie(clip.latents, clip.dropped_frames, clip.latent_channels, clip.hidden, clip.video,
                  clip.vision);
}

}  // namespace

int ClipKinds::add(const Clip& clip) {
  const Key key{common_in_batch(clip.record.settings), clip.format.branches, clip.format.input};
  const auto [entry, is_new] = numbers_.emplace(key, this->size());
  // Layouts are found for a format, which must have all that shapes depend on.
  const auto same = is_new ? std::ranges::find(first_, clip.format, &Clip::format)
                           : first_.begin() + entry->second;
  expect(same == first_.end() || shapes_of(*same) == shapes_of(clip),
         "clips {} and {} have one format and other shapes", same->index(), clip.index());
  if (is_new) first_.push_back(clip);
  return entry->second;
}

std::vector<ClipOutline> chosen_clips(const Job& job, std::span<const ClipOutline> clips) {
  if (job.chosen.empty()) return {clips.begin(), clips.end()};
  std::vector<ClipOutline> chosen;
  std::ranges::copy_if(clips, std::back_inserter(chosen), [&](const ClipOutline& clip) {
    return std::ranges::binary_search(job.chosen, clip.index);
  });
  return chosen;
}

std::filesystem::path restart_folder(const Job& job, int clip) {
  std::error_code unreadable;
  const bool is_own = !std::ranges::binary_search(job.chosen, clip) ||
                      std::filesystem::exists(restart_path(job.output, clip), unreadable);
  return is_own ? job.output : job.source.from.parent_path();
}

std::vector<BatchOutline> form_batches(std::span<const ClipOutline> clips, const ClipKinds& kinds,
                                       int max_clips) {
  std::vector<BatchOutline> batches;
  // By kind and first step the last batch of such clips: only that one can have room.
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> last;
  for (const ClipOutline& clip : clips) {
    const auto [found, is_new] = last.try_emplace({clip.kind, clip.saved_step}, batches.size());
    const int limit = kinds[clip.kind].sampling.decides ? 1 : max_clips;
    if (is_new || std::ssize(batches[found->second]) == limit) {
      found->second = batches.size();
      batches.emplace_back();
    }
    batches[found->second].push_back(clip);
  }
  return batches;
}

std::int64_t batch_steps(const BatchOutline& batch, const ClipKinds& kinds) {
  std::int64_t steps = 0;
  for (const ClipOutline& clip : batch) {
    steps += kinds[clip.kind].end_step(clip.saved_step) - clip.saved_step;
  }
  return steps;
}

std::int64_t computed_batch_steps(const BatchOutline& batch, const ClipKinds& kinds) {
  std::int64_t steps = 0;
  for (const ClipOutline& clip : batch) {
    const Clip& like = kinds[clip.kind];
    for (std::int64_t i = clip.saved_step; i < like.end_step(clip.saved_step); ++i) {
      steps += like.sampling.computes(i) ? 1 : 0;
    }
  }
  return steps;
}

std::string shown(const VideoSize& size) {
  return fmt::format("{}x{}x{}", size.frames, size.height, size.width);
}

}  // namespace reelmesh
