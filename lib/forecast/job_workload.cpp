#include "forecast/job_workload.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "forecast/dry_runs.hpp"
#include "plan/denoise.hpp"

namespace reelmesh {
namespace {

StageTimes stage_times(const Job& job, const PlanMachine& machine, std::int64_t texts) {
  if (machine.times == nullptr) return {};
  const int on_node = ranks_of_fullest_node(machine);
  const auto times = [&](int busy) {
    return time_model(machine.times, {busy, machine.threads, on_node});
  };
  return {times(static_cast<int>(std::min<std::int64_t>(texts, on_node))),
          times(busy_ranks(job, machine))};
}

// How many texts are encoded for these clips, if they have the same negative prompt.
std::int64_t encoded_texts(const JobPlan& planned) {
  bool negative = false;
  for (const ClipOutline& clip : planned.clips) {
    negative = negative || planned.kinds[clip.kind].texts.size() > 1;
  }
  return std::ssize(planned.clips) + (negative ? 1 : 0);
}

// Of a clip, so that its plan takes at most about a minute.
constexpr std::int64_t max_latents = std::int64_t{1} << 27;

// What the clips of one format need.
struct OfFormat {
  const Clip* first = nullptr;
  std::int64_t tokens = 1;   // of the longest text
  std::int64_t reading = 0;  // bytes of the host while an input is read
};

std::vector<OfFormat> of_formats(const Job& job, const JobPlan& planned) {
  std::vector<OfFormat> formats(planned.formats.size());
  for (OfFormat& format : formats) format.reading = planned.training.reading_bytes;
  for (const ClipOutline& outline : planned.clips) {
    const Clip& clip = planned.kinds[outline.kind];
    OfFormat& format = formats[planned.size_index(clip)];
    if (format.first == nullptr) format.first = &clip;
    format.tokens = std::max<std::int64_t>(format.tokens, outline.tokens);
    require(numel(clip.latents) <= max_latents, Status::unavailable,
            "sample.frames, height and width: clip {} of {} has {} latents, expected at most {}",
            outline.index, shown(clip.format.size), numel(clip.latents), max_latents);
    if (!clip.input) continue;
    ClipInput input = *clip.input;
    const ClipRequest request = job.request(static_cast<std::size_t>(outline.index));
    for (const InputFile& file : {clip_input_file(job, request), clip_last_image(job, request)}) {
      if (file.kind == InputKind::none) continue;
      input.file = file;
      const InputFacts& facts = planned.inputs.at(file.path);
      format.reading = std::max(format.reading, reading_bytes(input, facts, clip.format.size));
    }
  }
  return formats;
}

}  // namespace

// The dtypes of tensors and GEMMs.
Precision job_precision(const Job& job, const Conditions& conditions) {
  if (conditions.on_gpu) {
    Precision precision{job.dtype, job.dtype, true};
    precision.gpus.of_node = ranks_of_fullest_node(conditions.machine);
    if (const int found = conditions.machine.multiprocessors; found > 0) {
      precision.gpus.multiprocessors = found;
    }
    return precision;
  }
  return {job.dtype, job.dtype == DType::float32 ? DType::float32 : conditions.products, false,
          conditions.packed_for};
}

std::vector<ClipFormat> clip_formats(const ClipKinds& kinds) {
  std::vector<ClipFormat> formats;
  for (int kind = 0; kind < kinds.size(); ++kind) {
    const ClipFormat& format = kinds[kind].format;
    if (std::ranges::find(formats, format) == formats.end()) formats.push_back(format);
  }
  return formats;
}

std::int64_t bytes_of_clips(const Job& job) {
  // Outline, batch with its state (clip_maker.hpp), schedule, row of the index.
  constexpr std::int64_t kept = 512;
  return static_cast<std::int64_t>(job.clip_count()) * kept + job.request_bytes();
}

int ranks_of_fullest_node(const PlanMachine& machine) {
  std::map<int, int> ranks;
  for (const int node : machine.node_of) ++ranks[node];
  int max = machine.node_of.empty() ? machine.ranks : 1;
  for (const auto& [node, count] : ranks) max = std::max(max, count);
  return max;
}

int busy_ranks(const Job& job, const PlanMachine& machine) {
  const int on_node = ranks_of_fullest_node(machine);
  const Roles roles = assign_roles(job.parallel, machine.ranks);
  return std::max(1, roles.mode == Mode::split ? on_node - roles.text.count : on_node);
}

Workload job_workload(const Job& job, const JobPlan& planned, const Conditions& conditions) {
  const Family& family = *planned.family;
  const Precision precision = job_precision(job, conditions);
  const auto together = std::min<std::int64_t>(job.batch, std::ssize(planned.clips));
  Workload workload;
  std::optional<DryTraining> training;
  if (job.train) {  // its embeddings go to files
    training = {*planned.train, planned.training.make};
    workload.trained_clips = job.train->batch;
  } else {
    for (const ClipOutline& clip : planned.clips) {
      const std::int64_t bytes = planned.embedding_bytes(clip, job.dtype);
      workload.embedding_bytes += bytes;
      workload.largest_embedding_bytes =
          std::max(workload.largest_embedding_bytes, together * bytes);
    }
  }
  const BesideParts beside{.loras = planned.loras, .decodes = job.keep_video && !job.train};
  workload.clip_bytes = planned.clip_bytes;
  const auto runs = DryRuns::of(family, precision, job.numerics, planned.unlike_processors,
                                stage_times(job, conditions.machine, encoded_texts(planned)),
                                std::move(training), beside);
  std::int64_t tokens = 1;
  for (const OfFormat& format : of_formats(job, planned)) {
    workload.sizes.push_back(family.workload(*format.first, format.tokens));
    runs->complete(workload.sizes.back(), *format.first, together, format.reading);
    tokens = std::max(tokens, format.tokens);
  }
  workload.text = runs->text_workload(tokens);
  workload.costs = runs;
  workload.found = std::make_shared<FoundLayouts>();
  return workload;
}

}  // namespace reelmesh
