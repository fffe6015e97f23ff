#include "train/sampling.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/stop.hpp"
#include "base/trace.hpp"
#include "forecast/plan_job.hpp"
#include "job/options.hpp"
#include "models/checkpoints/parts.hpp"
#include "pipeline/run.hpp"
#include "store/job_files.hpp"

namespace reelmesh::train {
namespace {

constexpr std::int64_t captions = 2;  // that are taken without train.sample-prompts

// Of the training's options, those of clips, and what its own say of them: values by name.
using Values = std::map<std::string, std::vector<std::string>>;

Values values_of(const Job& job, const VideoSize& size) {
  const TrainSettings& train = *job.train;
  Values values;
  for (const auto& [name, value] : job.options) values[name].push_back(value);
  const auto set = [&](const char* name, const auto& value) {
    values[name] = {fmt::format("{}", value)};
  };
  set("sample.height", size.height);
  set("sample.width", size.width);
  set("sample.frames", size.frames);
  if (train.data.fps) set("sample.fps", *train.data.fps);
  if (train.sample_steps) set("sample.steps", *train.sample_steps);
  if (train.sample_guidance) set("sample.guidance", *train.sample_guidance);
  set("sample.seed", train.seed);
  set("parallel.mode", "phased");
  set("output.if-exists", "resume");
  set("trace.level", "off");
  return values;
}

// While it exists, spans are those of another job.
class OtherRecorder {
 public:
  OtherRecorder() : own_(std::exchange(trace::recorder(), {})) {}
  ~OtherRecorder() { trace::recorder() = std::move(own_); }
  OtherRecorder(const OtherRecorder&) = delete;
  OtherRecorder& operator=(const OtherRecorder&) = delete;

 private:
  trace::Recorder own_;
};

}  // namespace

std::filesystem::path sampling_folder(const std::filesystem::path& output, std::int64_t step) {
  return output / "samples" / step_folder(step);
}

Job sampling_job(const Job& job, const Samples& samples, std::int64_t step,
                 const std::filesystem::path& trained) {
  VideoSize size = samples.buckets.front().size;
  size.frames = samples.planned.family->made_frames(size.frames);
  Values values = values_of(job, size);
  values["output.path"] = {sampling_folder(job.output, step).string()};
  values["model.copy-to"] = {"none"};  // the training's copies are in use
  switch (job.train->method->files) {
    case TrainedFiles::lora:
      if (!trained.empty()) values["model.lora"].push_back(trained.string() + ":1");
      break;
    case TrainedFiles::transformer:
      values["model.lora"] = {"none"};  // the weights have their changes
      if (!trained.empty()) values["model.transformer"] = {trained.string()};
      break;
  }
  Draft draft;
  for (const Option& option : options()) {
    if (!option.is_of(JobKind::clips)) continue;
    auto& given = values[option.name];
    if (given.empty() && option.fallback != nullptr) given.emplace_back(option.fallback);
    for (const std::string& value : given) {
      option.set(draft, value, option.name);
      draft.job.options.emplace_back(option.name, value);
    }
  }
  Job clips = std::move(draft.job);
  clips.model.complete();
  clips.model.without_weights = job.model.without_weights;
  clips.source.command = job.source.command;
  clips.clips = job.clips;
  if (!job.clips.empty()) return clips;
  for (std::int64_t i = 0; i < std::min(captions, samples.learned); ++i) {
    const DataSample& data = samples.usable[static_cast<std::size_t>(i)].data;
    clips.clips.push_back({.prompt = data.prompt, .where = data.where});
  }
  return clips;
}

std::string when_sampled(const TrainSettings& settings) {
  return fmt::format("before the first step, after each {} and after the last: ",
                     settings.sample_every);
}

void of_sampling(const std::function<void()>& check) {
  errors_begin_with("train.sample-every: the clips that are made", check);
}

JobPlan plan_sampling(const Job& clips, const Conditions& conditions, Inputs inputs,
                      const TrainSettings& settings) {
  LoraMemory later;
  if (const std::optional<LoraShape> lora = lora_shape(settings)) {
    const Config config = Config::read(clips.model.transformer / "config.json");
    for (const auto& [name, shape] : expected_tensors(ModelPart::transformer, config)) {
      constexpr std::string_view end = ".weight";
      if (!name.ends_with(end) || shape.size() != 2) continue;
      const std::optional<LoraTarget> target =
          lora->target(name.substr(0, name.size() - end.size()), shape[1], shape[0]);
      if (!target) continue;
      const LoraMemory own = lora_memory(target->in, target->rank);
      if (own.shared >= later.shared) later = own;
    }
  }
  return plan_job(clips, conditions, std::move(inputs), {}, later);
}

Status make_clips_together(const comm::Group& ranks, const Job& clips, const ProgramInfo& program) {
  const stop::NeverLeave never_leave;
  const trace::Scope scope(trace::spans::make_samples);
  const OtherRecorder of_clips;
  return pipeline::run(ranks, clips, program, nullptr, pipeline::Said::problems);
}

}  // namespace reelmesh::train
