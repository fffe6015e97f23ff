#include "forecast/plan_job.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/units.hpp"
#include "forecast/job_workload.hpp"
#include "ops/onednn.hpp"
#include "ops/products.hpp"
#include "store/restart.hpp"

namespace reelmesh {
namespace {

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

// Whether the blocks of a training keep all that gradients need: if that fits, leaves a tenth of
// the memory free, where its size is known, and does not move weights elsewhere.
bool keeps_blocks(const Job& job, JobPlan& planned, const Conditions& conditions) {
  const auto plan_of = [&](bool recomputes, const Conditions& there) {
    planned.train->recomputes_blocks = recomputes;
    return plan_clips(job.parallel, job_workload(job, planned, there), there);
  };
  Conditions less = conditions;
  const auto without_a_tenth = [](std::int64_t bytes) { return bytes - bytes / 10; };
  less.node_bytes = without_a_tenth(less.node_bytes);
  std::vector<std::int64_t>& limits = less.machine.memory_limits.values;
  std::ranges::transform(limits, limits.begin(), without_a_tenth);
  const Plan kept = plan_of(false, less);
  return fits(kept, less) && kept.weights.residence == plan_of(true, conditions).weights.residence;
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
  planned.loras = lora_memory(job.model.loras) + lora_memory(job.model.loras_2) + later;
  planned.formats = clip_formats(planned.kinds);
  planned.on_gpu = conditions.on_gpu;
  if (!conditions.on_gpu && job_precision(job, conditions).products == DType::bfloat16) {
    planned.products = ops::bfloat16_products();
  }
  planned.unlike_processors =
      !conditions.on_gpu && conditions.packed_for == PackedFor::any_processor;
  if (conditions.machine.times != nullptr) {
    planned.predicted_by = {.machine = conditions.machine.times,
                            .dtype = job.dtype,
                            .busy = busy_ranks(job, conditions.machine),
                            .on_disk = conditions.on_disk,
                            .copies_weights = !job.copies.empty(),
                            .saving = job.restart};
  }
  if (job.train && !job.train->recomputes_blocks) {
    planned.train->recomputes_blocks = !keeps_blocks(job, planned, conditions);
  }
  plan_again(planned, job, conditions, chosen_clips(job, planned.clips));
  return planned;
}

std::vector<ClipOutline> clips_to_plan(const Job& job, const JobPlan& planned) {
  std::vector<ClipOutline> clips = chosen_clips(job, planned.clips);
  if (job.chosen.empty()) return clips;
  for (ClipOutline& clip : clips) {
    const std::int64_t saved = RestartFile::step_of(restart_folder(job, clip.index), clip.index);
    const int steps = planned.kinds[clip.kind].sampling.sampler->calls();
    clip.saved_step = static_cast<std::int32_t>(std::min<std::int64_t>(saved, steps));
  }
  return clips;
}

void plan_again(JobPlan& planned, const Job& job, const Conditions& conditions,
                const std::vector<ClipOutline>& clips) {
  const Workload workload = job_workload(job, planned, conditions);
  const Conditions there = with_parts_of_nodes(job, workload, conditions);
  if (job.train) {
    planned.plan = plan_clips(job.parallel, workload, there);
    complete_plan(planned.plan, workload);
    planned.convolutions = workload.costs->convolutions();
    return;
  }
  const std::vector<BatchOutline> batches = form_batches(clips, planned.kinds, job.batch);
  static_cast<JobLayout&>(planned) = Choice(job, planned, workload, there, batches).best().layout;
  complete_plan(planned.plan, workload);
  if (planned.tail) complete_plan(*planned.tail, workload);
  planned.convolutions = workload.costs->convolutions();
}

std::vector<BatchOutline> ordered_batches(const JobPlan& planned,
                                          std::span<const ClipOutline> clips, int max_clips) {
  return in_order(planned, planned, form_batches(clips, planned.kinds, max_clips));
}

void for_each_plan(JobPlan& planned, const Job& job, const Conditions& conditions,
                   const std::vector<ParallelRequest>& requests,
                   const std::function<void(const ParallelRequest&)>& use) {
  const Workload workload = job_workload(job, planned, conditions);
  for (const ParallelRequest& request : requests) {
    std::optional<Plan> plan = fitting_plan(request, workload, conditions);
    if (!plan) continue;
    complete_plan(*plan, workload);
    static_cast<JobLayout&>(planned) = {.plan = std::move(*plan)};
    use(request);
  }
}

std::vector<Candidate> layouts_of_job(const JobPlan& planned, const Job& job,
                                      const Conditions& conditions,
                                      const std::vector<BatchOutline>& batches) {
  const Workload workload = job_workload(job, planned, conditions);
  return Choice(job, planned, workload, with_parts_of_nodes(job, workload, conditions), batches)
      .all();
}

void require_fit(const Job& job, const JobPlan& planned, const Conditions& conditions) {
  const MemoryPlan& memory = planned.plan.memory;
  const std::string over = excess_text(memory);
  if (over.empty()) return;
  const auto fits = [&](const Job& other, const Conditions& there) {
    try {
      const Workload workload = job_workload(other, planned, there);
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
