#include "pipeline/run.hpp"

#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.hpp"
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
#include "pipeline/running_job.hpp"
#include "pipeline/tuning.hpp"
#include "store/restart.hpp"

namespace reelmesh::pipeline {
namespace {

// A job on all its ranks, in the order of its functions. Each is collective.
class JobRun final : public RunningJob {
 public:
  JobRun(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
         comm::Watchdog* watchdog, Said said)
      : RunningJob(ranks, job, program, watchdog), said_(said) {}

  // All that can refuse the job comes before anything is loaded, written or removed.
  void plan();
  void open_output();
  void choose_clips();
  void choose_layouts();
  void prepare_output();
  void begin_trace();

  MadeClips make_clips();
  void write_results(const MadeClips& made);
  Status report(const MadeClips& made) const;

 private:
  void check_plan_and_order();
  void describe_plan();
  void record_plan() { RunningJob::record_plan(described_, prediction_); }
  void take_tuned_plan();
  void take_new_plan(const MadeClips& made, std::vector<ClipOutline>& left);
  Peaks measured_peaks();
  void write_index();
  std::int64_t count(ClipState::State state) const;

  Said said_;
  // Of clips that a training makes, the time before them does not count.
  const double age_at_start_ = said_ == Said::problems ? process_age() : 0;

  JobPlan planned_;
  std::string model_;               // hash of the weights
  FoundClips found_clips_;          // at the start; empty once it is recorded
  std::vector<ClipOutline> clips_;  // that were still to be made then
  std::optional<Tuning> tuning_;
  std::optional<NewPlans> new_plans_;
  std::optional<Prediction> prediction_;
  nlohmann::json described_;
  std::optional<TraceWriter> traces_;
  std::optional<StatusFile> status_file_;
};

void JobRun::plan() {
  find_devices();
  comm::run_on_first_rank(world_, [&] { check_model(job_); });
  conditions_ = agree_on_conditions(job_, world_, found_);
  planned_ = plan_job(job_, conditions_, check_inputs(world_, job_));
  check_plan_and_order();
}

void JobRun::check_plan_and_order() {
  world_ = require_plan_fits_together(job_, planned_, conditions_, found_);
}

void JobRun::open_output() {
  RunningJob::open_output(Product::clips);
  comm::run_on_first_rank(world_, [&] { require_inputs_kept(job_, *output_); });
  model_ = planned_.family->weights_hash(world_);
  require_same_weights(job_, model_);
  planned_.fingerprint = fingerprint(model_, job_, {found_.device.is_cuda(), planned_.products});
}

void JobRun::choose_clips() {
  found_clips_ = find_clips_together(job_, planned_, world_);
  clips_ = clips_to_make(job_, found_clips_);
  if (clips_.empty() || (job_.if_exists != IfExists::resume && job_.chosen.empty())) return;
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
  describe_plan();
  if (!clips_.empty() && said_ == Said::all) {
    announce(clips_text(clips_, planned_.kinds), described_);
  }
  begin_record(planned_, model_);
  record_plan();
  if (world_.rank() == 0) {
    record_.clips.resize(planned_.clips.size());
    set_states(record_.clips, found_clips_);
  }
  set_others_aside_together(world_, job_.output,
                            record_.clips);  // before an index that links all clips
  if (clips_.empty()) return;
  comm::run_on_first_rank(world_, [&] {
    stop::leave_if_requested("the index is written");
    write_index();
  });
  begin_status(status_file_, status_of_clips(job_, planned_, found_clips_, clips_));
  found_clips_ = {};
}

void JobRun::begin_trace() {
  if (clips_.empty()) return;
  const Peaks peaks = measured_peaks();
  RunningJob::begin_trace(traces_, planned_.plan, peaks);
}

void JobRun::describe_plan() {
  const std::vector<BatchOutline> batches = form_batches(clips_, planned_.kinds, job_.batch);
  prediction_ = predict(planned_, batches);
  described_ = describe(planned_, batches, prediction_);
}

// If the trace has operations, which are compared with them.
Peaks JobRun::measured_peaks() {
  if (trace::recorder().level < trace::Level::ops) return {};
  const trace::Scope scope(trace::spans::measure);
  return measure_peaks(world_, job_.dtype, found_.device, job_.numerics);
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
  end_trace(traces_, made.complete ? std::optional(process_age() - age_at_start_) : std::nullopt);
  record_.status = !made.complete ? "stopped" : made.failures.empty() ? "complete" : "failed";
  if (world_.rank() == 0) update_states(record_.clips, made);
  comm::run_on_first_rank(world_, [&] {
    write_index();
    const bool is_done = made.complete && made.failures.empty() && count(ClipState::preview) == 0;
    if (is_done) remove_restarts(job_.output);
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
  const std::int64_t complete = count(ClipState::complete);  // in this job or before
  const Totals totals = this->totals(std::ssize(made.written) + std::ssize(made.previews), "clip");
  const std::string report = closing_report(world_, trace::recorder(), totals);
  log::info("{}results: {}", report, (job_.output / "job.h5").string());
  if (!made.failures.empty()) {
    log::info("{} of {} clips have failed, {} are complete; their reasons are in {}",
              made.failures.size(), planned_.clips.size(), complete,
              (job_.output / "job.h5").string());
  }
  if (const std::int64_t previews = count(ClipState::preview); previews > 0) {
    log::info(
        "{} of {} clips have a preview and are saved; reelmesh run --from {} --clips LIST "
        "completes some, --output.if-exists resume all",
        previews, planned_.clips.size(), (job_.output / "job.h5").string());
  }
  if (made.complete) return status;
  return stopped(fmt::format("{} of {} clips are complete, {} saved within denoising", complete,
                             planned_.clips.size(),
                             count(ClipState::saved) + count(ClipState::preview)));
}

}  // namespace

Status run(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
           comm::Watchdog* watchdog, Said said) {
  JobRun run(ranks, job, program, watchdog, said);
  {
    const trace::Scope scope(trace::spans::prepare);
    run.plan();
    run.open_output();
    run.choose_clips();
    run.choose_layouts();
    run.prepare_output();
  }
  run.begin_trace();
  const MadeClips made = run.make_clips();
  run.write_results(made);
  return run.report(made);
}

}  // namespace reelmesh::pipeline
