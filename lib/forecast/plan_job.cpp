#include "forecast/plan_job.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "base/number.hpp"
#include "base/stop.hpp"
#include "base/units.hpp"
#include "forecast/dry_runs.hpp"
#include "ops/onednn.hpp"
#include "ops/products.hpp"
#include "plan/decode.hpp"
#include "plan/step_time.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

// The dtypes of tensors and GEMMs.
Precision job_precision(const Job& job, const Conditions& conditions) {
  if (conditions.on_gpu) return {job.dtype, job.dtype, true};
  return {job.dtype, job.dtype == DType::float32 ? DType::float32 : conditions.products, false,
          conditions.packed_for};
}

// The index of this format, or the number of formats.
std::size_t format_index(const std::vector<ClipFormat>& formats, const ClipFormat& format) {
  return static_cast<std::size_t>(std::ranges::find(formats, format) - formats.begin());
}

std::vector<ClipFormat> clip_formats(const ClipKinds& kinds) {
  std::vector<ClipFormat> formats;
  for (int kind = 0; kind < kinds.size(); ++kind) {
    const ClipFormat& format = kinds[kind].format;
    if (format_index(formats, format) == formats.size()) formats.push_back(format);
  }
  return formats;
}

// For each kind of clips the index of its format.
std::vector<std::size_t> formats_of_kinds(const JobPlan& planned) {
  std::vector<std::size_t> indices;
  for (int kind = 0; kind < planned.kinds.size(); ++kind) {
    indices.push_back(format_index(planned.formats, planned.kinds[kind].format));
  }
  return indices;
}

// Of each text what the heap takes for it, if it does not stand in the object itself.
std::int64_t heap_bytes(const std::string& text) {
  constexpr std::size_t within = 15;
  return text.capacity() <= within ? 0 : static_cast<std::int64_t>(text.capacity()) + 16;
}

// Host memory of a rank for the requests of all clips, and for what it keeps of each while the job
// is planned and run.
std::int64_t bytes_of_clips(const Job& job) {
  // Outline, batch with its state (clip_maker.hpp), schedule, row of the index.
  constexpr std::int64_t kept = 512;
  std::int64_t bytes = 0;
  for (const ClipRequest& request : job.clips) {
    bytes += kept + std::int64_t{sizeof request};
    for (const std::string* text :
         {&request.prompt, &request.negative_prompt, &request.where, &request.image.native(),
          &request.video.native(), &request.input_hash}) {
      bytes += heap_bytes(*text);
    }
    bytes += static_cast<std::int64_t>(request.token_ids.capacity() * sizeof(std::int32_t));
  }
  return bytes;
}

// The matrices of LoRAs are in the host's memory while weights are read.
void add(const LoraMemory& loras, DenoiseWorkload& denoise) {
  if (loras.shared == 0) return;
  denoise.cost = [loras, cost = denoise.cost](const DenoiseLayout& layout, int rank,
                                              const Replica& replica) {
    DenoiseCost with = cost(layout, rank, replica);
    with.memory.working = std::max(with.memory.working, loras.shared);
    with.memory.per_thread += loras.per_thread;
    return with;
  };
}

// The workload of clips whose inputs take `reading` bytes while they are read.
ClipWorkload with_reading(ClipWorkload workload, std::int64_t reading) {
  if (!workload.encode) return workload;
  workload.encode = [encode = std::move(workload.encode), reading](const DecodeLayout& layout,
                                                                   int rank) {
    StageCost cost = encode(layout, rank);
    cost.memory.working = std::max(cost.memory.working, reading);
    return cost;
  };
  return workload;
}

// The FLOPs of a step in proportion to tokens, those of attention to their square.
void estimate_from(const DenoiseWorkload& known, DenoiseWorkload& other) {
  const auto tokens = [](const DenoiseWorkload& w) {
    return static_cast<double>(w.branches * (numel(w.tokens()) + w.text_tokens));
  };
  const double ratio = tokens(other) / tokens(known);
  other.whole_step = [ratio, whole = known.whole_step] {
    const WholeStep step = whole();
    return WholeStep{ratio * ratio * step.attention, ratio * step.others,
                     ratio * ratio * step.attention_seconds, ratio * step.other_seconds};
  };
}

// The first format is described to the user. Of the others, those that are smaller than another in
// every extent need not run.
void mark_smaller(std::vector<ClipWorkload>& sizes, const std::vector<ClipFormat>& formats) {
  constexpr std::size_t few = 8;  // all of these run
  if (sizes.size() <= few) return;
  const auto is_within = [&](std::size_t a, std::size_t b) {
    const DenoiseWorkload &one = sizes[a].denoise, &other = sizes[b].denoise;
    const ClipFormat &mine = formats[a], &theirs = formats[b];
    return a != b && std::ranges::equal(one.latents, other.latents, std::ranges::less_equal()) &&
           one.text_tokens <= other.text_tokens && mine.branches <= theirs.branches &&
           mine.size.frames <= theirs.size.frames && mine.input == theirs.input &&
           mine.keeps_residual <= theirs.keeps_residual;
  };
  std::vector<std::size_t> largest;  // so far, none within another
  for (std::size_t size = 0; size < sizes.size(); ++size) {
    const bool within =
        std::ranges::any_of(largest, [&](std::size_t other) { return is_within(size, other); });
    if (!within) {
      std::erase_if(largest, [&](std::size_t other) { return is_within(other, size); });
      largest.push_back(size);
    }
  }
  for (std::size_t size = 1; size < sizes.size(); ++size) {
    if (std::ranges::find(largest, size) != largest.end()) continue;
    sizes[size].smaller_than_others = true;
    estimate_from(sizes.front().denoise, sizes[size].denoise);
  }
}

// Dry runs of clips with more latents would take long and much memory: 4 million are 50 times as
// many as those of 49 frames of 480 x 720.
constexpr std::int64_t most_run_latents = std::int64_t{1} << 22;

// A smaller clip like this one.
Clip small_clip(const Job& job, const JobPlan& planned, const Clip& large) {
  Job small = job;
  ClipRequest request = job.clips.at(static_cast<std::size_t>(large.index()));
  const auto at_most = [](std::int64_t pixels) { return pixels > 1024 ? 512 : pixels; };
  request.settings.height = at_most(large.format.size.height);
  request.settings.width = at_most(large.format.size.width);
  request.settings.frames = std::min<std::int64_t>(large.format.size.frames, 49);
  small.clips = {std::move(request)};
  return planned.family->clip(small, 0, *planned.tokenizer, planned.inputs);
}

// The workload of clips that are too large to run: that of smaller ones, as dry runs have completed
// it, with the sizes of `large`. Working memory and operations grow with the latents.
ClipWorkload scaled(const ClipWorkload& small, const ClipWorkload& large) {
  ClipWorkload result = small;
  result.decode = large.decode;
  DenoiseWorkload& w = result.denoise;
  w.latents = large.denoise.latents;
  w.dropped_frames = large.denoise.dropped_frames;
  const auto latents = [](const DenoiseWorkload& of) {
    return static_cast<double>(numel(of.latents));
  };
  const double ratio = latents(w) / latents(small.denoise);
  const auto grown = [ratio](StageCost cost, const Layout& layout, int rank) {
    const double share =
        static_cast<double>(layout.box(rank).numel()) / static_cast<double>(numel(layout.global()));
    std::int64_t& working = cost.memory.working;
    working = to_integer(static_cast<double>(working) * ratio * share);
    cost.time = ratio * share * cost.time;
    return cost;
  };
  estimate_from(small.denoise, w);
  const DenoiseLayout alone = small.denoise.layouts(small.denoise, {}).front().layout;
  w.cost = [grown, small = small.denoise, alone, whole = w.whole_step](
               const DenoiseLayout& layout, int rank, const Replica& replica) {
    const int own = layout.branch_rank(rank);
    const WholeStep step = whole();
    const DenoiseCost of_small = small.cost(alone, 0, replica);
    StepCost own_step{.flops = (step.attention + step.others) / layout.mesh.ranks()};
    own_step.time = own_step.flops / of_small.step.flops * of_small.step.time;
    return DenoiseCost{grown(of_small.memory, layout.tokens, own).memory, own_step};
  };
  const DecodeLayout decoded = decode_layout(small.decode, 1);
  const auto grown_from = [&](const auto& cost) {
    return [grown, cost, decoded](const DecodeLayout& layout, int rank) {
      return grown(cost(decoded, 0), layout.latents, rank);
    };
  };
  result.decode.cost = grown_from(small.decode.cost);
  if (small.encode) result.encode = grown_from(small.encode);
  return result;
}

int ranks_of_fullest_node(const PlanMachine& machine) {
  std::map<int, int> ranks;
  for (const int node : machine.node_of) ++ranks[node];
  int most = machine.node_of.empty() ? machine.ranks : 1;
  for (const auto& [node, count] : ranks) most = std::max(most, count);
  return most;
}

// Ranks of the fullest node that compute at the same time while clips are made. In split mode those
// of the text stage have nothing to do then. Errors as assign_roles.
int busy_ranks(const Job& job, const PlanMachine& machine) {
  const int most = ranks_of_fullest_node(machine);
  const Roles roles = assign_roles(job.parallel, machine.ranks);
  return std::max(1, roles.mode == Mode::split ? most - roles.text.count : most);
}

StageTimes stage_times(const Job& job, const PlanMachine& machine, std::int64_t texts) {
  if (machine.times == nullptr) return {};
  const int most = ranks_of_fullest_node(machine);
  const auto times = [&](int busy) {
    return time_model(machine.times, {busy, machine.threads, most});
  };
  return {times(static_cast<int>(std::min<std::int64_t>(texts, most))),
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

Workload job_workload(const Job& job, const JobPlan& planned, const Precision& precision,
                      const PlanMachine& machine) {
  const Family& family = *planned.family;
  const std::vector<ClipOutline>& clips = planned.clips;
  const std::vector<ClipFormat>& formats = planned.formats;
  const std::vector<std::size_t> format_of_kind = formats_of_kinds(planned);
  Workload workload;
  std::vector<const Clip*> first(formats.size());
  std::vector<std::int64_t> tokens(formats.size(), 1);
  std::vector<std::int64_t> reading(formats.size(),
                                    precision.on_gpu ? 0 : planned.training.reading_bytes);
  const auto together = std::min<std::int64_t>(job.batch, std::ssize(clips));
  for (const ClipOutline& outline : clips) {
    const Clip& clip = planned.kinds[outline.kind];
    const std::size_t size = format_of_kind[static_cast<std::size_t>(outline.kind)];
    if (first[size] == nullptr) first[size] = &clip;
    tokens[size] = std::max<std::int64_t>(tokens[size], outline.tokens);
    if (clip.input && !precision.on_gpu) {
      ClipInput input = *clip.input;
      input.file = clip_input_file(job, job.clips[static_cast<std::size_t>(outline.index)]);
      const InputFacts& facts = planned.inputs.at(input.file.path);
      reading[size] = std::max(reading[size], reading_bytes(input, facts, clip.format.size));
    }
    if (job.train) continue;  // its embeddings go to files
    const std::int64_t bytes = planned.embedding_bytes(outline, job.dtype);
    workload.embedding_bytes += bytes;
    workload.largest_embedding_bytes = std::max(workload.largest_embedding_bytes, together * bytes);
  }
  std::optional<DryTraining> training;
  if (job.train) training = {*job.train, planned.training.make};
  const auto runs =
      DryRuns::of(family, precision, job.numerics, planned.unlike_processors,
                  stage_times(job, machine, encoded_texts(planned)), std::move(training));
  for (std::size_t size = 0; size < formats.size(); ++size) {
    ClipWorkload of_size = family.workload(*first[size], tokens[size]);
    if (numel(first[size]->latents) <= most_run_latents) {
      runs->complete(of_size, *first[size], together);
    } else {
      const Clip clip = small_clip(job, planned, *first[size]);
      ClipWorkload small = family.workload(clip, tokens[size]);
      runs->complete(small, clip, together);
      of_size = scaled(small, of_size);
    }
    if (!precision.on_gpu) add(planned.loras, of_size.denoise);
    if (!job.keep_video || job.train) {  // the decoder is not even loaded
      of_size.decode.cost = [](const DecodeLayout&, int) { return StageCost{}; };
    }
    workload.sizes.push_back(with_reading(std::move(of_size), reading[size]));
  }
  mark_smaller(workload.sizes, formats);
  if (!precision.on_gpu) workload.clip_bytes = planned.clip_bytes;
  if (job.train) workload.trained_clips = job.train->batch;
  workload.text = runs->text(std::ranges::max(tokens));
  workload.sent_weights = [runs](const RankWeights& shares, int rank, int ranks) {
    return runs->sent_weights(shares, rank, ranks);
  };
  return workload;
}

Plan plan_clips(const ParallelRequest& request, const Workload& workload,
                const Conditions& conditions) {
  const std::string& map = request.device_map;
  const std::string file = map.ends_with(".json") ? read_text(map, 1 << 24) : std::string();
  PlanMachine machine = conditions.machine;
  machine.program += workload.clip_bytes;  // which are there before anything is loaded, too
  return make_plan(workload, machine, request, file);
}

// Whether the ranks of each node fit its memory together, where it is known, and their limits.
bool fits(const Plan& plan, const Conditions& conditions) {
  if (!plan.memory.fits()) return false;
  if (conditions.node_bytes <= 0) return true;
  std::map<int, std::int64_t> needed;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    needed[plan.node[static_cast<std::size_t>(rank)]] += plan.memory.peak(rank);
  }
  return std::ranges::all_of(
      needed, [&](const auto& node) { return node.second <= conditions.node_bytes; });
}

// On CPUs the ranks of a node share its memory. If the job does not fit it as it was asked for, and
// the user has set no limits, the limit of each rank is an equal part of its node, so that the plan
// may shard or fetch weights.
Conditions with_parts_of_nodes(const Job& job, const Workload& workload,
                               const Conditions& conditions) {
  const PlanMachine& machine = conditions.machine;
  if (conditions.node_bytes <= 0 || !machine.memory_limits.values.empty() ||
      fits(plan_clips(job.parallel, workload, conditions), conditions)) {
    return conditions;
  }
  Conditions parts = conditions;
  parts.machine.memory_limits.values.assign(static_cast<std::size_t>(machine.ranks),
                                            conditions.node_bytes / ranks_of_fullest_node(machine));
  parts.machine.limits_are_free_memory = true;
  return parts;
}

// The cost of a step on the busiest of these ranks; of equal shares unless each rank's is known. In
// seconds if there is a machine, otherwise in FLOPs.
double busiest(const Plan& plan, const ClipPlan& size, const RankRange& range,
               const PredictedBy& by) {
  const MachineTimes* machine = by.machine.get();
  if (size.ranks.empty()) {
    return by.measured_step * (machine != nullptr ? size.whole_seconds : size.whole_flops) /
           range.count;
  }
  double most = 0;
  for (int rank = range.first; rank < range.first + range.count; ++rank) {
    const double speed =
        plan.rank_weights.empty() ? 1 : plan.rank_weights[static_cast<std::size_t>(rank)];
    most = std::max(most, step_cost(plan, size, rank, speed, machine));
  }
  return by.measured_step * most;
}

// The cost of a batch on a replica: of its steps, and in seconds also of what follows on the same
// ranks. The batches must outlive the result.
TaskCost task_cost(const Plan& plan, const JobPlan& planned,
                   const std::vector<BatchOutline>& batches) {
  const std::size_t replicas = plan.roles.denoise.size();
  const MachineTimes* machine = planned.predicted_by.machine.get();
  // Costs of a step of one clip of each size, in a batch, on each replica; and of what follows.
  std::vector<std::vector<double>> costs;
  std::vector<double> after;
  for (std::size_t i = 0; i < plan.sizes.size(); ++i) {
    const ClipPlan& size = plan.sizes[i];
    std::vector<double>& row = costs.emplace_back(replicas, 0.0);
    for (std::size_t replica = 0; replica < replicas; ++replica) {
      row[replica] = busiest(plan, size, plan.roles.denoise[replica], planned.predicted_by) /
                     static_cast<double>(size.workload.clips);
    }
    const bool follows = machine != nullptr && plan.roles.mode == Mode::phased;
    after.push_back(follows ? seconds_after_steps(planned, plan, i) : 0);
  }
  return [costs = std::move(costs), after = std::move(after), formats = formats_of_kinds(planned),
          &kinds = planned.kinds, &batches](std::size_t batch, std::size_t replica) {
    const std::size_t size = formats[static_cast<std::size_t>(batches[batch].front().kind)];
    return costs.at(size)[replica] *
               static_cast<double>(computed_batch_steps(batches[batch], kinds)) +
           after[size] * static_cast<double>(batches[batch].size());
  };
}

TaskSchedule batch_schedule(const Plan& plan, const JobPlan& planned,
                            const std::vector<BatchOutline>& batches) {
  stop::leave_if_requested("the job is planned");
  return longest_first(batches.size(), plan.roles.denoise.size(),
                       task_cost(plan, planned, batches));
}

// The plan as asked, and, if nothing is asked of the denoising groups, plans with more replicas, in
// increasing number.
std::vector<Plan> plans_with_replicas(const Job& job, const Workload& workload, std::size_t batches,
                                      const Conditions& conditions) {
  ParallelRequest request = job.parallel;
  const Plan asked = plan_clips(request, workload, conditions);
  const bool split = asked.roles.mode == Mode::split;
  if (split) {
    request.text = asked.roles.text.count;
    request.decode = asked.roles.decode.front().count;
  }
  std::vector<Plan> plans{asked};
  if (request.replicas || request.cfg || request.ulysses || request.ring) return plans;
  const int ranks = split ? asked.roles.denoise.front().count : asked.ranks;
  const int most = static_cast<int>(std::min(batches, static_cast<std::size_t>(ranks)));
  for (int replicas = 2; replicas <= most; ++replicas) {
    if (ranks % replicas != 0) continue;
    request.replicas = replicas;
    Plan more = plan_clips(request, workload, conditions);
    if (fits(more, conditions)) plans.push_back(std::move(more));
  }
  return plans;
}

// Chooses among these plans the one with which the batches are predicted to be complete first; of
// equal ones, the one with the most replicas. Then a tail, if there are fewer batches left for the
// last round than replicas, and larger groups make them sooner.
void choose_replicas(JobPlan& planned, std::vector<Plan> plans,
                     const std::vector<BatchOutline>& batches) {
  const auto predicted_end = [&](const Plan& plan, const std::vector<BatchOutline>& some) {
    return batch_schedule(plan, planned, some).end;
  };
  // In FLOPs, costs leave out decoding, which is cheaper on smaller groups: they exchange fewer
  // halos.
  const double tolerance = planned.predicted_by.machine != nullptr ? 1 : 1.02;
  std::size_t best = 0;
  double end = predicted_end(plans[0], batches);
  for (std::size_t i = 1; i < plans.size(); ++i) {
    const double its_end = predicted_end(plans[i], batches);
    if (its_end > tolerance * end) continue;
    best = i;
    end = std::min(end, its_end);
  }
  // A tail saves less than the time of one batch, which is little in a job of many rounds.
  constexpr std::size_t max_rounds = 20;
  constexpr double least_saving = 0.01;
  end *= 1 - least_saving;
  std::optional<std::size_t> tail;
  planned.tail_batches = 0;
  const bool phased = plans.front().roles.mode == Mode::phased;
  for (std::size_t first = plans.size() - 1; phased && first > 0; --first) {
    const std::size_t replicas = plans[first].roles.denoise.size();
    const std::size_t rest = batches.size() % replicas;
    if (rest == 0 || batches.size() > max_rounds * replicas) continue;
    std::vector<BatchOutline> ordered;
    for (const std::size_t i : batch_schedule(plans[first], planned, batches).order) {
      ordered.push_back(batches[i]);
    }
    const auto border = ordered.end() - static_cast<std::ptrdiff_t>(rest);
    const double before = predicted_end(plans[first], {ordered.begin(), border});
    for (std::size_t then = first; then-- > 0;) {
      const Plan& larger = plans[then];
      if (larger.roles.denoise.size() > rest || larger.launched != plans[first].launched) continue;
      const double its_end = before + predicted_end(larger, {border, ordered.end()});
      if (its_end >= end) continue;
      end = its_end;
      best = first;
      tail = then;
      planned.tail_batches = rest;
    }
  }
  planned.tail.reset();
  if (tail) planned.tail = std::move(plans[*tail]);
  planned.plan = std::move(plans[best]);
}

}  // namespace

JobPlan plan_job(const Job& job, const Conditions& conditions, Inputs inputs,
                 TrainingToPlan training, LoraMemory later) {
  expect(!job.train || training.make, "a training without its code");
  JobPlan planned;
  planned.train = job.train;
  planned.training = std::move(training);
  planned.inputs = std::move(inputs);
  planned.family = Family::open(job.model);
  planned.tokenizer = planned.family->open_tokenizer();
  ClipList list = planned.family->clips(job, *planned.tokenizer, planned.inputs);
  planned.clips = std::move(list.clips);
  planned.kinds = std::move(list.kinds);
  planned.clip_bytes = bytes_of_clips(job);
  if (job.train) planned.clip_bytes += training_program_bytes;
  planned.loras = lora_memory(job.model.loras) + later;
  planned.formats = clip_formats(planned.kinds);
  planned.on_gpu = conditions.on_gpu;
  if (!conditions.on_gpu && job_precision(job, conditions).products == DType::bfloat16) {
    planned.products = ops::bfloat16_products();
  }
  planned.unlike_processors =
      !conditions.on_gpu && conditions.packed_for == PackedFor::any_processor;
  if (conditions.machine.times != nullptr) {
    planned.predicted_by = {conditions.machine.times, job.dtype,
                            busy_ranks(job, conditions.machine), encoded_texts(planned)};
  }
  plan_again(planned, job, conditions, planned.clips);
  return planned;
}

void plan_again(JobPlan& planned, const Job& job, const Conditions& conditions,
                const std::vector<ClipOutline>& clips) {
  const Workload workload =
      job_workload(job, planned, job_precision(job, conditions), conditions.machine);
  if (job.train) {
    planned.plan =
        plan_clips(job.parallel, workload, with_parts_of_nodes(job, workload, conditions));
    complete_plan(planned.plan, workload, job.parallel);
    return;
  }
  const std::vector<BatchOutline> batches = form_batches(clips, planned.kinds, job.batch);
  choose_replicas(planned,
                  plans_with_replicas(job, workload, batches.size(),
                                      with_parts_of_nodes(job, workload, conditions)),
                  batches);
  complete_plan(planned.plan, workload, job.parallel);
  if (planned.tail) complete_plan(*planned.tail, workload, job.parallel);
}

void for_each_plan(JobPlan& planned, const Job& job, const Conditions& conditions,
                   const std::vector<ParallelRequest>& requests,
                   const std::function<void(const ParallelRequest&)>& use) {
  const Workload workload =
      job_workload(job, planned, job_precision(job, conditions), conditions.machine);
  for (const ParallelRequest& request : requests) {
    Plan plan;
    try {
      plan = plan_clips(request, workload, conditions);
    } catch (const Error& error) {
      if (error.status() != Status::unavailable) throw;
      continue;  // these ranks cannot form the requested groups
    }
    if (!fits(plan, conditions)) continue;
    complete_plan(plan, workload, request);
    planned.plan = std::move(plan);
    planned.tail.reset();
    planned.tail_batches = 0;
    use(request);
  }
}

double seconds_of_input(const Plan& plan, std::size_t size) {
  double seconds = 0;
  for (const ClipPlan::OfRank& rank : plan.sizes[size].ranks) {
    seconds = std::max(seconds, rank.encode_time.total());
  }
  return seconds;
}

double seconds_of_decode(const JobPlan& planned, const Plan& plan, std::size_t size) {
  const ClipPlan& clip = plan.sizes[size];
  double decode = 0;
  for (const ClipPlan::OfRank& rank : clip.ranks) {
    decode = std::max(decode, rank.decode_time.total());
  }
  if (!clip.ranks.empty()) return decode;
  const auto step = [&](std::size_t of) {
    return busiest(plan, plan.sizes[of], plan.roles.denoise.front(), planned.predicted_by);
  };
  return step(size) / std::max(step(0), 1e-12) * seconds_of_decode(planned, plan, 0);
}

double seconds_after_steps(const JobPlan& planned, const Plan& plan, std::size_t size) {
  const VideoSize& video = planned.formats[size].size;
  return seconds_of_decode(planned, plan, size) +
         static_cast<double>(3 * video.frames * video.height * video.width) /
             planned.predicted_by.machine->write;
}

double seconds_of_step(const JobPlan& planned, const Plan& plan, std::size_t size,
                       std::size_t replica) {
  const ClipPlan& clip = plan.sizes[size];
  return busiest(plan, clip, plan.roles.denoise[replica], planned.predicted_by) /
         static_cast<double>(clip.workload.clips);
}

TaskSchedule task_schedule(const JobPlan& planned, const std::vector<BatchOutline>& batches) {
  return batch_schedule(planned.plan, planned, batches);
}

double seconds_of_tasks(const JobPlan& planned, const std::vector<BatchOutline>& batches) {
  if (!planned.tail) return task_schedule(planned, batches).end;
  std::vector<BatchOutline> ordered;
  for (const std::size_t i : task_schedule(planned, batches).order) ordered.push_back(batches[i]);
  const auto border = ordered.end() - static_cast<std::ptrdiff_t>(planned.tail_of(ordered.size()));
  return batch_schedule(planned.plan, planned, {ordered.begin(), border}).end +
         batch_schedule(*planned.tail, planned, {border, ordered.end()}).end;
}

std::vector<BatchOutline> ordered_batches(const JobPlan& planned,
                                          std::span<const ClipOutline> clips, int max_clips) {
  std::vector<BatchOutline> batches = form_batches(clips, planned.kinds, max_clips);
  if (planned.plan.roles.denoise.size() == 1) return batches;
  std::vector<BatchOutline> ordered;
  ordered.reserve(batches.size());
  for (const std::size_t i : task_schedule(planned, batches).order) {
    ordered.push_back(std::move(batches[i]));
  }
  return ordered;
}

void require_fit(const Job& job, const JobPlan& planned, const Conditions& conditions) {
  const MemoryPlan& memory = planned.plan.memory;
  const std::string over = describe_excess(memory);
  if (over.empty()) return;
  const auto fits = [&](const Job& other, const Conditions& there) {
    try {
      const Workload workload =
          job_workload(other, planned, job_precision(other, there), there.machine);
      return plan_clips(other.parallel, workload, there).memory.fits();
    } catch (const Error&) {
      return false;
    }
  };
  std::string help;
  const auto add = [&](const std::string& what) { help += (help.empty() ? "" : " or ") + what; };
  // More ranks with the same limit; not tried with limits per rank, since those of new ranks are
  // unknown.
  constexpr int max_ranks = 64;
  const PlanMachine& machine = conditions.machine;
  for (int ranks = machine.ranks + 1; job.memory_limits.size() == 1 && ranks <= max_ranks;
       ++ranks) {
    Job more_ranks_job = job;
    more_ranks_job.speeds = {};
    Conditions there = plan_conditions(more_ranks_job, ranks, machine.threads, {},
                                       conditions.products, conditions.on_gpu);
    there.packed_for = conditions.packed_for;
    if (!fits(more_ranks_job, there)) continue;
    add(fmt::format("{} ranks", ranks));
    break;
  }
  if (job.dtype == DType::float32) {
    Job half = job;
    half.dtype = DType::bfloat16;
    Conditions there = conditions;
    there.products = ops::compute_dtype(half.dtype);
    if (fits(half, there)) add("numerics.dtype = bfloat16");
  }
  std::int64_t needed = 0;
  for (int r = 0; r < static_cast<int>(memory.ranks.size()); ++r) {
    if (!memory.fits(r)) needed = std::max(needed, memory.peak(r));
  }
  // 0.5 % more, so that the rounded number is still enough.
  add(fmt::format("a limit of {}", format_bytes(1.005 * static_cast<double>(needed))));
  fail(Status::unavailable, "{}; what would help: {}", over, help);
}

}  // namespace reelmesh
