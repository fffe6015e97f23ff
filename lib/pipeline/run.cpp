#include "pipeline/run.hpp"

#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/device_spans.hpp"
#include "base/file_state.hpp"
#include "base/log.hpp"
#include "base/stop.hpp"
#include "base/trace.hpp"
#include "comm/together.hpp"
#include "job/describe.hpp"
#include "job/host_memory.hpp"
#include "job/job_plan.hpp"
#include "job/job_record.hpp"
#include "job/machine.hpp"
#include "job/options.hpp"
#include "ops/convolution.hpp"
#include "ops/onednn.hpp"
#include "ops/packing.hpp"
#include "ops/products.hpp"
#include "pipeline/autosave.hpp"
#include "pipeline/make_clips.hpp"
#include "pipeline/report.hpp"
#include "pipeline/status_file.hpp"
#include "store/earlier.hpp"
#include "store/job.hpp"
#include "store/output_folder.hpp"
#include "store/trace.hpp"

namespace reelmesh::pipeline {
namespace {

// Runs `work` on rank 0; if it fails, all ranks throw the same error.
void on_first_rank(const comm::Group& world, const std::function<void()>& work) {
  comm::run_collectively(world, [&] {
    if (world.rank() == 0) work();
  });
}

// The ranks agree on the conditions, so that all of them compute the same plan.
Conditions agree_on_conditions(const Job& job, const comm::Group& world, int threads,
                               Device device) {
  Conditions conditions =
      plan_conditions(job, world.size(), static_cast<int>(world.max(std::int64_t{threads})),
                      gather_nodes(world), ops::compute_dtype(job.dtype), device.is_cuda());
  const std::vector<std::string> packings = world.all_gather(ops::packing_signature());
  if (std::ranges::adjacent_find(packings, std::ranges::not_equal_to()) != packings.end()) {
    conditions.packed_for = ops::PackedFor::any_processor;
  }
  if (!device.is_cuda()) {
    conditions.node_bytes =
        static_cast<std::int64_t>(world.min(static_cast<double>(host_memory().physical)));
  }
  if (job.measure_speeds) {
    conditions.machine.rank_weights = {measure_speeds(world, job.dtype, device, job.numerics),
                                       false};
  }
  if (job.memory_limits.empty()) {
    conditions.machine.memory_limits = {free_memory_of_ranks(world, device), false};
    conditions.machine.limits_are_free_memory = true;
  }
  return conditions;
}

// The clips that are still to be made, with the steps that are saved of them. The ranks share the
// work of reading the files that are there.
std::vector<ClipOutline> pending_clips(const Job& job, const JobPlan& planned,
                                       const comm::Group& world) {
  const std::vector<ClipOutline>& clips = planned.clips;
  if (job.if_exists != IfExists::resume) return clips;
  constexpr std::int64_t complete = -1;
  std::vector<std::int64_t> steps(clips.size(), 0);
  const std::int64_t channels = planned.family->text_encoder().d_model;
  const auto ranks = static_cast<std::size_t>(world.size());
  for (auto i = static_cast<std::size_t>(world.rank()); i < clips.size(); i += ranks) {
    stop::leave_if_requested("the files of earlier jobs are checked");
    std::error_code unreadable;
    const std::filesystem::path path = clip_path(job.output, clips[i].index);
    const std::filesystem::path restart = restart_path(job.output, clips[i].index);
    if (!std::filesystem::exists(path, unreadable) &&
        !std::filesystem::exists(restart, unreadable)) {
      continue;
    }
    const Clip clip = planned.clip(job, clips[i]);
    const bool made = clip_complete(path, clip.record, output_shapes(job, clip, channels));
    steps[i] = made ? complete : saved_steps(job, clip, channels);
  }
  world.sum(steps);
  std::vector<ClipOutline> pending;
  std::size_t saved = 0;
  for (std::size_t i = 0; i < clips.size(); ++i) {
    if (steps[i] == complete) continue;
    if (steps[i] > 0) ++saved;
    pending.push_back(clips[i]);
    pending.back().saved_step = static_cast<std::int32_t>(steps[i]);
  }
  if (pending.size() < clips.size()) {
    log::info("{} of {} clips are complete already", clips.size() - pending.size(), clips.size());
  }
  for (const ClipOutline& clip : pending) {
    if (clip.saved_step == 0) continue;
    log::info("clip {} goes on after step {} of {}{}", clip.index, clip.saved_step,
              planned.clip_steps(clip.index),
              saved > 1 ? fmt::format(", and {} more clips after saved steps", saved - 1) : "");
    break;
  }
  return pending;
}

// The states of the clips before they are made. pending: those that pending_clips() has left.
void set_states(std::vector<JobClip>& records, const std::vector<ClipOutline>& pending) {
  for (JobClip& record : records) record.state = {ClipState::complete, {}};
  for (const ClipOutline& clip : pending) {
    records.at(static_cast<std::size_t>(clip.index)).state.state =
        clip.saved_step > 0 ? ClipState::saved : ClipState::missing;
  }
}

// Their states afterwards.
void update_states(std::vector<JobClip>& records, const MadeClips& made) {
  const auto set = [&](int clip, ClipState state) {
    records.at(static_cast<std::size_t>(clip)).state = std::move(state);
  };
  for (const int clip : made.saved) set(clip, {ClipState::saved, {}});
  for (const int clip : made.written) set(clip, {ClipState::complete, {}});
  for (const ClipFailure& failure : made.failures) {
    set(failure.clip, {ClipState::failed, failure.reason});
  }
}

// Leaves only complete clips of this job in the folder, by the states that the first rank has.
void set_others_aside(const comm::Group& world, const Job& job,
                      const std::vector<JobClip>& records) {
  std::int64_t moved = 0;
  on_first_rank(world, [&] {
    moved = static_cast<std::int64_t>(set_clips_aside(job.output, [&](int clip) {
      const auto i = static_cast<std::size_t>(clip);
      return i < records.size() && records[i].state.state == ClipState::complete;
    }));
  });
  moved = world.max(moved);
  if (moved == 0) return;
  log::info("{} {} not of this job, or damaged: moved to {}", moved,
            moved == 1 ? "clip file is" : "clip files are", (job.output / "earlier").string());
}

// This rank's row of the trace's table of ranks, with its values now.
RankRecord rank_record(const Machine& machine, int threads, Device device, const Plan& plan,
                       int rank, const Peaks& peaks) {
  const trace::Recorder& recorder = trace::recorder();
  RankRecord record;
  record.host = machine.host;
  record.role = plan.roles.of(rank);
  record.device = name_of(device);
  record.threads = threads;
  record.peak_memory_bytes = peak_memory_bytes();
  record.peak_device_memory_bytes = device_memory(device).peak;
  record.host_memory = memory_by_purpose(false);
  record.device_memory = memory_by_purpose(true);
  record.padded_products = recorder.padded_products;
  record.kernels = fmt::format("{}", fmt::join(recorder.kernels, "; "));
  if (!plan.memory.limits.empty()) {
    record.memory_limit_bytes = plan.memory.limits.at(static_cast<std::size_t>(rank));
  }
  record.predicted_memory_bytes = plan.memory.peak(rank);
  record.peak_flops_per_s = peaks.flops_per_s;
  record.peak_memory_bytes_per_s = peaks.bytes_per_s;
  return record;
}

Existing existing(IfExists choice) {
  return choice == IfExists::fail      ? Existing::fail
         : choice == IfExists::replace ? Existing::replace
                                       : Existing::resume;
}

}  // namespace

Status run(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
           comm::Watchdog* watchdog) {
  std::optional<stop::UnsavedWork> unsaved;  // from the last files on, until all else is freed
  const std::int64_t start = trace::now_ns();
  const std::string started = iso8601_now();
  trace::recorder() = {};
  trace::recorder().level = static_cast<trace::Level>(job.trace_level);
  const FilesInUse files;

  const Machine machine = find_machine(ranks);
  const int threads = set_threads(machine, job.threads);
  const Device device = find_device(ranks, job.backend);
  if (!device.is_cuda()) agree_on_products(ranks, job);
  const comm::Group launched = ranks.use_device(device, job.transport, job.device_timeout);
  comm::Group world = launched;
  if (device.is_cuda() && world.size() > 1) {
    log::info("messages between GPUs use {}", name_of(world.transport()));
  }
  if (device.is_cuda()) {
    trace::recorder().device_spans = std::make_shared<trace::DeviceSpans>(device_clock(device));
  }

  // All checks that can refuse the job come before anything is loaded, written or removed.
  if (device.is_cuda()) {
    comm::run_collectively(world, [&] { ops::require_right_convolutions(device, job.dtype); });
  }
  on_first_rank(world, [&] { Family::open(job.model)->check_weights(has_videos(job)); });
  const Conditions conditions = agree_on_conditions(job, world, threads, device);
  JobPlan planned = plan_job(job, conditions, check_inputs(world, job));
  const Plan& plan = planned.plan;
  const auto check_and_order = [&] {
    // Without a limit from the user, a predicted excess of GPU memory is only a warning.
    if (!job.memory_limits.empty()) {
      require_fit(job, planned, conditions);
    } else if (device.is_cuda() && !plan.memory.fits()) {
      log::warning("{} (the GPU's free memory); continuing, but the job may run out of memory",
                   describe_excess(plan.memory));
    }
    world = std::ranges::is_sorted(plan.launched) ? launched : launched.in_order(plan.launched);
    if (!device.is_cuda()) {
      require_host_memory(world, plan.memory, threads);
    }
    const std::string idle = describe_idle(plan.roles, world.size());
    if (!idle.empty()) log::warning("{}", idle);
  };
  check_and_order();
  std::optional<OutputFolder> output;  // on the first rank
  on_first_rank(world, [&] {
    output.emplace(job.output, existing(job.if_exists));
    require_inputs_kept(job, *output);
  });
  const std::string model = planned.family->weights_hash(world);
  require_same_weights(job, model);
  planned.fingerprint = fingerprint(model, job, {device.is_cuda(), planned.products});
  std::vector<ClipOutline> clips = pending_clips(job, planned, world);
  const auto count = static_cast<int>(clips.size());
  if (count > 0 && job.if_exists == IfExists::resume) {
    const std::vector<RankRange> replicas = plan.roles.denoise;
    plan_again(planned, job, conditions, clips);
    if (plan.roles.denoise != replicas) check_and_order();
  }
  // The first change to what is there, after all that can refuse the job.
  comm::run_collectively(world, [&] {
    if (output) output->prepare();
  });
  const nlohmann::json described = describe(planned, form_batches(clips, planned.kinds, job.batch));
  if (count > 0) {
    log::info("{} {}: {}\nmodel {}, {}\n{}", program.name, program.described(),
              describe_clips(clips, planned.kinds), job.model.described(), name_of(job.dtype),
              plan_text(described, Detail::summary));
  }

  JobRecord record = job_record(world, job, planned, program, machine, device, model);
  record.plan = described.at("description");
  record.start = started;
  if (world.rank() == 0) {  // which writes it
    record.plan_json = described.dump(2);
    record.clips.resize(planned.clips.size());
    set_states(record.clips, clips);
  }
  // The requests are in memory only while they are written.
  const auto write_index = [&] {
    set_requests(record.clips, job, planned);
    write_job(job.output, record);
    for (JobClip& clip : record.clips) {  // by assignment texts would keep their memory
      (void)std::exchange(clip, JobClip{.state = std::move(clip.state)});
    }
    malloc_trim(0);
  };
  set_others_aside(world, job, record.clips);  // before an index that links all clips
  std::optional<StatusFile> status_file;
  if (count > 0) {
    on_first_rank(world, [&] {
      stop::leave_if_requested("the index is written");
      write_index();
    });
    if (watchdog != nullptr && ranks.rank() == 0) {
      status_file.emplace(job, planned, *watchdog);
    }
  }

  std::optional<TraceWriter> traces;
  if (job.trace_level > 0 && count > 0) {  // otherwise a trace that is there says how it was made
    Peaks peaks;
    if (trace::recorder().level >= trace::Level::ops) {
      const trace::Scope scope(trace::spans::measure);
      peaks = measure_peaks(world, job.dtype, device, job.numerics);
    }
    const auto level = trace::level_names.at(static_cast<std::size_t>(job.trace_level));
    traces.emplace(world, job.output, std::string(level), [&, peaks] {
      return rank_record(machine, threads, device, plan, world.rank(), peaks);
    });
  }

  const MadeClips made = make_clips(job, planned, world, clips, device, watchdog);

  unsaved.emplace();
  if (const auto& spans = trace::recorder().device_spans) spans->settle();
  if (traces) traces->finish();
  record.end = iso8601_now();
  record.status = !made.complete ? "stopped" : made.failures.empty() ? "complete" : "failed";
  if (world.rank() == 0) update_states(record.clips, made);
  on_first_rank(world, [&] {
    write_index();
    if (made.complete && made.failures.empty()) remove_restarts(job.output);
  });
  if (status_file) status_file->remove();

  const auto number = [&](ClipState::State state) {
    return std::ranges::count(record.clips, state,
                              [](const JobClip& clip) { return clip.state.state; });
  };
  Totals totals;
  const std::int64_t complete = number(ClipState::complete);  // in this job or before
  totals.clips = static_cast<int>(complete) - (static_cast<int>(planned.clips.size()) - count);
  totals.wall_seconds = static_cast<double>(trace::now_ns() - start) * 1e-9;
  totals.peak_memory_bytes = peak_memory_bytes();
  totals.peak_device_memory_bytes = device_memory(device).peak;
  totals.memory = memory_by_purpose(device.is_cuda());
  const std::string report = closing_report(world, trace::recorder(), totals);
  log::info("{}results: {}", report, (job.output / "job.h5").string());
  if (!made.failures.empty()) {
    log::info("{} of {} clips have failed, {} are complete; their reasons are in {}",
              made.failures.size(), planned.clips.size(), complete,
              (job.output / "job.h5").string());
  }
  if (made.complete) return made.failures.empty() ? Status::ok : Status::data;
  const auto cause = static_cast<int>(world.max(std::int64_t{stop::cause()}));
  log::info(
      "stopped on request ({}): {} of {} clips are complete, {} saved within denoising; run again "
      "with --output.if-exists resume to go on",
      stop::describe(cause), complete, planned.clips.size(), number(ClipState::saved));
  return Status::stopped;
}

}  // namespace reelmesh::pipeline
