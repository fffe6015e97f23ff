#include "job/family.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <unordered_set>

#include "base/log.hpp"
#include "base/stop.hpp"
#include "job/families/cogvideox.hpp"
#include "job/families/opensora.hpp"
#include "job/families/wan.hpp"
#include "job/weights_hash.hpp"
#include "models/checkpoints/parts.hpp"
#include "models/common/asked.hpp"
#include "models/t5/t5.hpp"
#include "weights/config.hpp"
#include "weights/json.hpp"
#include "weights/lora.hpp"
#include "weights/lora_changes.hpp"

namespace reelmesh {
namespace {

template <class T>
std::unique_ptr<const Family> open_as(const ModelPaths& paths) {
  paths.check();
  check_classes(paths);
  return std::make_unique<T>(paths);
}

std::map<std::string, Family::Open>& families() {
  static std::map<std::string, Family::Open> known = [] {
    std::map<std::string, Family::Open> classes{
        {OpenSoraFolder::pipeline_class, open_as<OpenSora>}};
    for (const char* name : CogVideoXFolder::pipeline_classes) classes[name] = open_as<CogVideoX>;
    for (const char* name : WanFolder::pipeline_classes) classes[name] = open_as<Wan>;
    return classes;
  }();
  return known;
}

// That a clip lasts longer or shorter than its video, whose frames are used as they are; or empty.
std::string warning_of_rate(const Clip& clip, const InputFacts& facts) {
  constexpr double tolerance = 1e-3;
  const double fps = clip.fps();
  if (facts.fps == 0 || std::abs(fps - facts.fps) <= tolerance * fps) return {};
  return fmt::format(
      "clip {}: {} has {:.5g} frames per second, the clip {:.5g}: it lasts {:.3g} times as "
      "long, since frames are not resampled in time",
      clip.index(), clip.input->file.path.string(), facts.fps, fps, facts.fps / fps);
}

// Passes each text on once, but not more than the first few: a job may have a million inputs.
class FewLines {
 public:
  // more: what the others are.
  FewLines(void (*log)(const std::string&), const char* more) : log_(log), more_(more) {}
  void add(const std::string& text) {
    const bool is_new = !text.empty() && said_.insert(std::hash<std::string>()(text)).second;
    if (is_new && said_.size() <= max_shown) log_(text);
  }
  void finish() const {
    if (said_.size() <= max_shown) return;
    log_(fmt::format("and {} more {}", said_.size() - max_shown, more_));
  }

 private:
  static constexpr std::size_t max_shown = 10;
  void (*log_)(const std::string&);
  const char* more_;
  std::unordered_set<std::size_t> said_;  // hashes
};

// Clips with a number of frames that the model cannot make.
struct RoundedFrames {
  std::string where;  // of the first of them
  std::int64_t clips = 0;
};

// Where a clip has its number of frames from; empty for the model's own.
std::string where_frames_are_given(const Job& job, const ClipRequest& request, const Clip& clip) {
  if (request.settings.frames) return request.where + ": frames";
  if (job.sample.frames) return "sample.frames";
  return clip.format.input == InputKind::video ? clip.input->file.where : "";
}

std::string warning_of_frames(const Family& family, std::int64_t asked, std::int64_t made,
                              const RoundedFrames& rounded) {
  const auto can_make = [&](std::int64_t frames) { return family.made_frames(frames) == frames; };
  std::int64_t below = asked, above = asked;
  while (below > 1 && !can_make(below)) --below;
  while (!can_make(above)) ++above;
  return fmt::format(
      "{}: found {} frames{}, of which the model makes {}; the nearest numbers that it can make "
      "are {} and {}",
      rounded.where, asked,
      rounded.clips > 1 ? fmt::format(" (the first of {} clips)", rounded.clips) : "", made, below,
      above);
}

}  // namespace

void Family::add(const std::string& pipeline_class, Open open) {
  families()[pipeline_class] = open;
}

std::string Family::weights_hash(const comm::Group& world) const {
  return reelmesh::weights_hash(world, paths(), HashCache::of_user());
}

std::unique_ptr<const Family> Family::open(const ModelPaths& paths) {
  paths.check_root();
  paths.check_links();
  return find(paths.root / "model_index.json")(paths);
}

Family::Open Family::find(const std::filesystem::path& model_index) {
  const std::string name = read_model_index(model_index).class_name;
  const auto family = families().find(name);
  if (family == families().end()) {
    std::vector<std::string> known;
    for (const auto& [pipeline_class, open] : families()) known.push_back(pipeline_class);
    fail(Status::data, "{}: found pipeline {}, expected {}", model_index.string(), printable(name),
         fmt::join(known, " or "));
  }
  return family->second;
}

Tokenizer Family::open_tokenizer() const {
  if (!paths().has_tokenizer()) return Tokenizer::without_vocabulary(text_encoder().vocab_size);
  Tokenizer tokenizer = Tokenizer::open(paths());
  require(tokenizer.vocabulary_size() <= text_encoder().vocab_size, Status::data,
          "{}: found {} ids, expected at most {}, the rows of the embedding in {}",
          paths().tokenizer.string(), tokenizer.vocabulary_size(), text_encoder().vocab_size,
          paths().text_encoder.string());
  return tokenizer;
}

std::unique_ptr<const Encoder> Family::encoder(const Checkpoint&, DType) const {
  fail(Status::internal, "{}: no encoder for images and videos", paths().root.string());
}

std::unique_ptr<const VisionEncoder> Family::vision_encoder(const Checkpoint&, DType) const {
  fail(Status::internal, "{}: no encoder whose rows a transformer takes", paths().root.string());
}

namespace {

[[noreturn]] void refuse_training(const ModelPaths& paths) {
  fail(Status::usage,
       "model.path: {} cannot be trained, expected a model of CogVideoX, Open-Sora or Wan",
       paths.root.string());
}

}  // namespace

std::unique_ptr<Trainable> Family::trainable(const Checkpoint&, DType, const WeightPlacement&,
                                             const TrainingMode&) const {
  refuse_training(paths());
}

TrainingNoise Family::training_noise(const Job&, const VideoSize&) const {
  refuse_training(paths());
}

void Family::check_weights(bool encodes_video) const {
  const auto say_left_out = [&](const std::string& left_out) {
    if (left_out.empty()) return;
    require(!paths().strict_loras, Status::data, "{}; expected none, as model.lora-strict says",
            left_out);
    log::warning("{}", left_out);
  };
  for (const ModelPart part : model_parts) {
    for (const LoraFile& file : paths().loras_of(part)) {
      say_left_out(Lora::open(file.path).left_out());
    }
  }
  const auto make = [&](ModelPart part, const Checkpoint& weights) {
    switch (part) {
      case ModelPart::transformer:
      case ModelPart::transformer_2:
        denoiser([&](ModelPart one) { return one == part ? weights : Checkpoint::of_shapes(); },
                 DType::float32, {}, layers());
        break;
      case ModelPart::vae:
        decoder(weights, DType::float32);
        if (encodes_video || takes(InputKind::image)) encoder(weights, DType::float32);
        break;
      case ModelPart::text_encoder:
        T5Layers(weights, text_encoder(), T5Part::whole(text_encoder()), DType::float32);
        break;
      case ModelPart::image_encoder:
        if (vision_pixels()) vision_encoder(weights, DType::float32);
        break;
    }
  };
  for (const ModelPart part : paths().parts()) {
    if (!paths().has_weights(part)) continue;
    const Checkpoint weights = open(part);
    weights.check(asked_by([&](const Checkpoint& shapes) { make(part, shapes); }));
    if (weights.changes() == nullptr) continue;
    for (const std::string& left_out : weights.changes()->left_out()) say_left_out(left_out);
  }
}

void Family::check_input(const Clip& clip, const Inputs& inputs) const {
  const InputKind found = clip.format.input;
  if (takes(found)) {
    if (found == InputKind::image) check_images(clip, inputs);
    return;
  }
  std::vector<std::string> options;
  for (const InputKind kind : {InputKind::image, InputKind::video}) {
    if (takes(kind)) options.push_back(fmt::format("prompt.{}", name_of(kind)));
  }
  const std::string root = paths().root.string();
  require(found != InputKind::none, Status::usage,
          "prompt.image: clip {} has none, expected one: the checkpoint in {} makes videos from a "
          "first image",
          clip.index(), root);
  const InputFile& file = clip.input->file;
  fail(Status::usage, "{}: clip {} has '{}', expected none: the checkpoint in {} takes no {}{}",
       file.where, clip.index(), file.path.string(), root, name_of(found),
       options.empty() ? "" : fmt::format(", only {}", fmt::join(options, ", ")));
}

void Family::check_images(const Clip& clip, const Inputs& inputs) const {
  const InputFile &first = clip.input->file, &last = clip.input->last;
  const bool ends = clip.input->ends_with_image();
  const std::string root = paths().root.string();
  require(!ends || last_image() != LastImage::never, Status::usage,
          "{}: clip {} has '{}', expected none: the checkpoint in {} takes no last image",
          last.where, clip.index(), last.path.string(), root);
  require(ends || last_image() != LastImage::always, Status::usage,
          "prompt.last-image: clip {} has none, expected one: the checkpoint in {} makes videos "
          "between a first and a last image",
          clip.index(), root);
  if (!vision_pixels()) return;
  for (const InputFile* file : {&first, &last}) {
    if (file->kind == InputKind::none) continue;
    const InputFacts& facts = inputs.at(file->path);
    const auto [shorter, longer] = std::minmax(facts.height, facts.width);
    require(longer <= max_vision_ratio * shorter, Status::data,
            "{}: {}: found {} x {} pixels (width x height), expected sides of which the longer is "
            "at most {} times the shorter",
            file->where, file->path.string(), facts.width, facts.height, max_vision_ratio);
  }
}

Clip Family::clip(const Job& job, int index, const Tokenizer& tokenizer,
                  const Inputs& inputs) const {
  const ClipRequest request = job.request(static_cast<std::size_t>(index));
  Clip clip = requested_clip(job, request, index, defaults(), inputs);
  if (!job.train) check_input(clip, inputs);  // an image is the first frame of each video
  const auto& shift = clip.record.settings.flow_shift;
  require(!shift || takes_flow_shift(), Status::usage,
          "{}: found {} for clip {}, expected none: the samplers of this model have no shift",
          request.settings.flow_shift ? request.where + ": flow_shift" : "sample.flow-shift",
          shift.value_or(0), index);
  const auto& levels = clip.record.settings.noise_levels;
  require(!levels || takes_flow_shift(), Status::usage,
          "{}: found {} for clip {}, expected none: the samplers of this model have their own",
          request.settings.noise_levels ? request.where + ": noise_levels" : "sample.noise-levels",
          levels ? levels->text() : "", index);
  set_second_guidance(clip, request);
  complete(clip, job, request, tokenizer);
  if (clip.cache()) set_computed_steps(clip, request);
  return clip;
}

void Family::set_second_guidance(Clip& clip, const ClipRequest& request) const {
  std::optional<double>& guidance = clip.record.settings.guidance_2;
  require(!guidance || experts() > 1, Status::usage,
          "{}: found {} for clip {}, expected none: the model has no second transformer",
          request.settings.guidance_2 ? request.where + ": guidance_2" : "sample.guidance-2",
          guidance.value_or(0), clip.index());
  if (experts() > 1 && !guidance) guidance = clip.guidance();
}

std::vector<double> Family::distances_of(const Clip& clip) const {
  if (distances_depend_on_values()) return {};
  require(paths().has_weights(ModelPart::transformer), Status::unavailable,
          "sample.cache: found {} for clip {}, expected none or every:N without the weights of {}: "
          "which steps teacache leaves out depends on their values",
          clip.cache().value().text(), clip.index(), paths().transformer.string());
  const Sampler& sampler = *clip.sampling.sampler;
  std::vector<double> timesteps;
  for (int i = 0; i < sampler.calls(); ++i) timesteps.push_back(sampler.timestep(i));
  return distances_.get(timesteps, [&] { return step_distances(timesteps); });
}

void Family::set_computed_steps(Clip& clip, const ClipRequest& request) const {
  const StepCache& cache = clip.cache().value();
  std::optional<CacheCoefficients>& coefficients = clip.record.settings.cache_coefficients;
  const std::string where =
      request.settings.cache ? request.where + ": cache" : std::string("sample.cache");
  require(
      experts() == 1, Status::usage,
      "{}: found {} for clip {}, expected none: what the blocks of one transformer added is not "
      "what those of the other would add",
      where, cache.text(), clip.index());
  std::vector<double> distances;
  if (cache.rule == StepCache::Rule::teacache) {
    distances = distances_of(clip);
    require(!distances.empty() || distances_depend_on_values(), Status::usage,
            "{}: found {} for clip {}, expected none or every:N: teacache has no rule for {}",
            where, cache.text(), clip.index(), paths().root.string());
    if (!coefficients) coefficients = cache_coefficients();
    require(
        coefficients.has_value(), Status::usage,
        "{}: found {} for clip {}, expected sample.cache-coefficients with it, or every:N: none "
        "are known for the transformer in {}",
        where, cache.text(), clip.index(), paths().transformer.string());
  }
  if (cache.rule == StepCache::Rule::teacache && distances.empty()) {
    clip.sampling.decides = TeaCacheRule{cache.threshold, *coefficients};
    return;
  }
  clip.sampling.computed = std::make_shared<const std::vector<bool>>(
      computed_steps(cache, clip.sampling.sampler->calls(),
                     coefficients.value_or(CacheCoefficients{}), distances));
}

ClipList Family::clips(const Job& job, const Tokenizer& tokenizer, const Inputs& inputs) const {
  if (!job.model.loras_2.empty()) {
    require(experts() > 1, Status::usage,
            "model.lora-2: found {}, expected none: the model in {} has one transformer, which "
            "model.lora changes",
            job.model.loras_2.front().path.string(), job.model.root.string());
  }
  check_options(job);
  const auto inform = [](const std::string& text) { log::info("{}", text); };
  const auto warn = [](const std::string& text) { log::warning("{}", text); };
  FewLines cut(warn, "texts are cut off"), files(inform, "images or videos"),
      rates(warn, "clips of another rate"), frames(warn, "numbers of frames that are rounded");
  std::map<std::pair<std::int64_t, std::int64_t>, RoundedFrames> rounded;  // by asked for and made
  ClipList list;
  list.clips.reserve(job.clip_count());
  bool has_video = false;
  for (int index = 0; index < static_cast<int>(job.clip_count()); ++index) {
    stop::leave_if_requested("the prompts are read");
    const Clip clip = this->clip(job, index, tokenizer, inputs);
    for (const std::string& warning : clip.warnings) cut.add(warning);
    if (clip.input) {
      const InputFacts& facts = inputs.at(clip.input->file.path);
      files.add(input_text(clip, facts));
      if (clip.input->ends_with_image()) {
        Clip end = clip;
        end.input->file = clip.input->last;
        files.add(input_text(end, inputs.at(clip.input->last.path)));
      }
      rates.add(warning_of_rate(clip, facts));
    }
    const std::int64_t asked = clip.format.size.frames, made = clip.video.at(0);
    if (!job.train && made != asked) {
      const ClipRequest request = job.request(static_cast<std::size_t>(index));
      const std::string where = where_frames_are_given(job, request, clip);
      if (!where.empty()) {
        RoundedFrames& same =
            rounded.try_emplace({asked, made}, RoundedFrames{where}).first->second;
        ++same.clips;
      }
    }
    has_video = has_video || clip.format.input == InputKind::video;
    list.clips.push_back(
        {index, list.kinds.add(clip), static_cast<std::int32_t>(clip.tokens()), 0});
  }
  for (const auto& [numbers, clips] : rounded) {
    frames.add(warning_of_frames(*this, numbers.first, numbers.second, clips));
  }
  for (const FewLines* lines : {&cut, &files, &rates, &frames}) lines->finish();
  require(!job.sample.strength || has_video, Status::usage,
          "sample.strength: found {}, expected it only with prompt.video",
          job.sample.strength.value_or(0));
  return list;
}

void check_model(const Job& job) {
  const auto family = Family::open(job.model);
  family->check_weights(job.train || has_videos(job));
  for (const std::string& unused : family->unused_contents()) log::warning("{}", unused);
}

}  // namespace reelmesh
