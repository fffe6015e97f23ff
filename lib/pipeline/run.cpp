#include "pipeline/run.hpp"

#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/device_spans.hpp"
#include "base/file_state.hpp"
#include "base/log.hpp"
#include "base/stop.hpp"
#include "base/system.hpp"
#include "base/trace.hpp"
#include "comm/together.hpp"
#include "forecast/describe.hpp"
#include "forecast/plan_job.hpp"
#include "job/options.hpp"
#include "job/weight_copies.hpp"
#include "ops/convolution.hpp"
#include "ops/packing.hpp"
#include "pipeline/clip_states.hpp"
#include "pipeline/new_plan.hpp"
#include "pipeline/report.hpp"
#include "pipeline/start.hpp"
#include "pipeline/status_file.hpp"
#include "pipeline/tuning.hpp"
#include "store/output_folder.hpp"
#include "store/restart.hpp"
#include "store/trace.hpp"

namespace reelmesh::pipeline {
namespace {

// A job on all its ranks, in the order of its functions. Each is collective.
class JobRun {
 public:
  JobRun(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
         comm::Watchdog* watchdog, Said said)
      : ranks_(ranks), job_(job), program_(program), watchdog_(watchdog), said_(said) {
    trace::recorder() = {};
    trace::recorder().level = static_cast<trace::Level>(job.trace_level);
  }

  // All that can refuse the job comes before anything is loaded, written or removed.
  void find_devices();
  void plan();
  void open_output();
  void choose_clips();
  void choose_layouts();
  void prepare_output();

  MadeClips make_clips();
  void write_results(const MadeClips& made);
  Status report(const MadeClips& made) const;

 private:
  void check_plan_and_order();
  void describe_plan();
  void announce();
  void begin_record();
  void record_plan();
  void take_tuned_plan();
  void take_new_plan(const MadeClips& made, std::vector<ClipOutline>& left);
  void begin_trace();
  void write_index();
  std::int64_t count(ClipState::State state) const;

  std::optional<stop::UnsavedWork> unsaved_;  // from the last files on, until all else is freed
  const std::int64_t start_ = trace::now_ns();
  const std::string started_ = iso8601_now();
  const FilesInUse files_;
  comm::Group ranks_;  // as launched
  const Job& job_;
  const ProgramInfo& program_;
  comm::Watchdog* watchdog_;
  Said said_;
  // Of clips that a training makes, the time before them does not count.
  const double age_at_start_ = said_ == Said::problems ? process_age() : 0;

  Devices found_;
  comm::Group world_;  // in plan order
  Conditions conditions_;
  JobPlan planned_;
  std::optional<OutputFolder> output_;  // on the first rank
  std::string model_;                   // hash of the weights
  std::vector<ClipOutline> clips_;      // that were still to be made at the start
  std::optional<Tuning> tuning_;
  std::optional<NewPlans> new_plans_;
  JobRecord record_;
  std::optional<Prediction> prediction_;
  nlohmann::json described_;
  std::optional<StatusFile> status_file_;
  std::optional<TraceWriter> traces_;
};

void JobRun::find_devices() {
  found_ = find_devices_together(ranks_, job_);
  world_ = found_.launched;
}

void JobRun::plan() {
  comm::run_on_first_rank(world_, [&] { check_model(job_); });
  conditions_ = agree_on_conditions(job_, world_, found_);
  planned_ = plan_job(job_, conditions_, check_inputs(world_, job_));
  check_plan_and_order();
}

void JobRun::check_plan_and_order() {
  world_ = require_plan_fits_together(job_, planned_, conditions_, found_);
}

void JobRun::open_output() {
  comm::run_on_first_rank(world_, [&] {
    output_.emplace(job_.output, existing(job_.if_exists));
    require_inputs_kept(job_, *output_);
  });
  model_ = planned_.family->weights_hash(world_);
  require_same_weights(job_, model_);
  planned_.fingerprint = fingerprint(model_, job_, {found_.device.is_cuda(), planned_.products});
}

void JobRun::choose_clips() {
  clips_ = find_pending_together(job_, planned_, world_);
  if (clips_.empty() || job_.if_exists != IfExists::resume) return;
  const std::vector<RankRange> replicas = planned_.plan.roles.denoise;
  plan_again(planned_, job_, conditions_, clips_);
  if (planned_.plan.roles.denoise != replicas) check_plan_and_order();
}

void JobRun::choose_layouts() {
  if (!job_.tune || clips_.empty()) return;
  tuning_.emplace(job_, planned_, conditions_, found_, world_, clips_);
  if (!tuning_->has_choice()) tuning_.reset();
}

// The first change to what is there.
void JobRun::prepare_output() {
  comm::run_collectively(world_, [&] {
    if (output_) output_->prepare();
  });
  announce();
  begin_record();
  set_others_aside_together(world_, job_.output,
                            record_.clips);  // before an index that links all clips
  if (clips_.empty()) return;
  comm::run_on_first_rank(world_, [&] {
    stop::leave_if_requested("the index is written");
    write_index();
  });
  if (watchdog_ != nullptr && ranks_.rank() == 0)
    status_file_.emplace(job_.output, status_of_clips(job_.output, planned_), *watchdog_);
  if (job_.trace_level > 0) begin_trace();  // otherwise a trace that is there says how it was made
}

void JobRun::describe_plan() {
  const std::vector<BatchOutline> batches = form_batches(clips_, planned_.kinds, job_.batch);
  prediction_ = predict(planned_, batches);
  described_ = describe(planned_, batches, prediction_);
}

void JobRun::announce() {
  describe_plan();
  if (clips_.empty() || said_ == Said::problems) return;
  log::info("{} {}: {}\nmodel {}, {}\n{}", program_.name, program_.text(),
            clips_text(clips_, planned_.kinds), job_.model.text(), name_of(job_.dtype),
            plan_text(described_, Detail::summary));
}

void JobRun::begin_record() {
  record_ =
      job_record(job_, planned_, program_, gather_hosts(world_, found_.machine, found_.device),
                 found_.device.is_cuda(), model_);
  record_plan();
  record_.start = started_;
  if (world_.rank() != 0) return;
  record_.clips.resize(planned_.clips.size());
  set_states(record_.clips, clips_);
}

void JobRun::record_plan() {
  record_.plan = described_.at("description");
  if (world_.rank() == 0) record_.plan_json = described_.dump(2);  // which writes it
  if (prediction_) record_.predicted_seconds = prediction_->job;
}

void JobRun::begin_trace() {
  Peaks peaks;
  if (trace::recorder().level >= trace::Level::ops) {
    const trace::Scope scope(trace::spans::measure);
    peaks = measure_peaks(world_, job_.dtype, found_.device, job_.numerics);
  }
  const auto level = trace::level_names.at(static_cast<std::size_t>(job_.trace_level));
  traces_.emplace(world_, job_.output, std::string(level), [this, peaks] {
    return rank_record(found_, planned_.plan, world_.rank(), peaks);
  });
}

// The requests are in memory only while they are written.
void JobRun::write_index() {
  set_requests(record_.clips, job_, planned_);
  write_job(job_.output, record_);
  for (JobClip& clip : record_.clips) {  // by assignment texts would keep their memory
    (void)std::exchange(clip, JobClip{.state = std::move(clip.state)});
  }
  malloc_trim(0);
}

MadeClips JobRun::make_clips() {
  if (!job_.copies.empty() && !clips_.empty()) {
    copy_weights_together(world_, job_.model, job_.copies);
  }
  TraceWriter* traces = traces_ ? &*traces_ : nullptr;
  std::vector<ClipOutline> left = clips_;
  MadeClips made;
  if (tuning_) {
    made = tuning_->time_together(left, traces);
    if (!made.complete) return made;
    take_tuned_plan();
  }
  new_plans_.emplace(job_, conditions_, found_);
  while (true) {
    made.append(make_clips_together(job_, planned_, world_, left, found_.device, watchdog_, traces,
                                    nullptr, &new_plans_->watch(), new_plans_->made()));
    if (made.complete) break;
    if (!new_plans_->wanted_together(world_)) return made;
    take_new_plan(made, left);
  }
  NewPlans::withdraw_together(world_);
  return made;
}

// All ranks have left for lack of memory. The clips that they made are saved.
void JobRun::take_new_plan(const MadeClips& made, std::vector<ClipOutline>& left) {
  const stop::NeverLeave something_is_made;
  left = read_pending_together(job_, planned_, world_, left);
  std::erase_if(left, [&](const ClipOutline& clip) {
    return std::ranges::find(made.failures, clip.index, &ClipFailure::clip) != made.failures.end();
  });
  const auto plan = [&](const Job& job, const Conditions& conditions) {
    reelmesh::plan_again(planned_, job, conditions, left);
  };
  record_.planned_again.push_back(new_plans_->make_together(world_, planned_, plan));
  describe_plan();
  record_plan();
  comm::run_on_first_rank(world_, [&] { write_index(); });
}

void JobRun::take_tuned_plan() {
  describe_plan();
  if (tuning_->kept_other()) log::info("{}", plan_text(described_, Detail::summary));
  record_plan();
  record_.tuned = tuning_->describe().dump();
  comm::run_on_first_rank(world_, [&] { write_index(); });
}

void JobRun::write_results(const MadeClips& made) {
  unsaved_.emplace();
  if (const auto& spans = trace::recorder().device_spans) spans->settle();
  if (traces_) traces_->finish_together();
  record_.end = iso8601_now();
  if (made.complete) record_.measured_seconds = process_age() - age_at_start_;
  record_.status = !made.complete ? "stopped" : made.failures.empty() ? "complete" : "failed";
  if (world_.rank() == 0) update_states(record_.clips, made);
  comm::run_on_first_rank(world_, [&] {
    write_index();
    if (made.complete && made.failures.empty()) remove_restarts(job_.output);
  });
  if (status_file_) status_file_->remove();
}

// Clips of the job in this state, on the first rank.
std::int64_t JobRun::count(ClipState::State state) const {
  return std::ranges::count(record_.clips, state,
                            [](const JobClip& clip) { return clip.state.state; });
}

Status JobRun::report(const MadeClips& made) const {
  const Status status = !made.complete          ? Status::stopped
                        : made.failures.empty() ? Status::ok
                                                : Status::data;
  if (said_ == Said::problems) return status;
  Totals totals;
  const std::int64_t complete = count(ClipState::complete);  // in this job or before
  totals.done = complete - std::ssize(planned_.clips) + std::ssize(clips_);
  totals.wall_seconds = static_cast<double>(trace::now_ns() - start_) * 1e-9;
  totals.peak_memory_bytes = peak_memory_bytes();
  totals.peak_device_memory_bytes = device_memory(found_.device).peak;
  totals.memory = memory_by_purpose(found_.device.is_cuda());
  const std::string report = closing_report(world_, trace::recorder(), totals);
  log::info("{}results: {}", report, (job_.output / "job.h5").string());
  if (!made.failures.empty()) {
    log::info("{} of {} clips have failed, {} are complete; their reasons are in {}",
              made.failures.size(), planned_.clips.size(), complete,
              (job_.output / "job.h5").string());
  }
  if (made.complete) return status;
  const auto cause = static_cast<int>(world_.max(std::int64_t{stop::cause()}));
  log::info(
      "stopped on request ({}): {} of {} clips are complete, {} saved within denoising; run again "
      "with --output.if-exists resume to go on",
      stop::cause_text(cause), complete, planned_.clips.size(), count(ClipState::saved));
  return status;
}

}  // namespace

Status run(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
           comm::Watchdog* watchdog, Said said) {
  JobRun run(ranks, job, program, watchdog, said);
  run.find_devices();
  run.plan();
  run.open_output();
  run.choose_clips();
  run.choose_layouts();
  run.prepare_output();
  const MadeClips made = run.make_clips();
  run.write_results(made);
  return run.report(made);
}

}  // namespace reelmesh::pipeline
