#include "pipeline/running_job.hpp"

#include <fmt/ranges.h>

#include "base/device_spans.hpp"
#include "base/log.hpp"
#include "base/system.hpp"
#include "comm/together.hpp"
#include "forecast/describe.hpp"
#include "job/machine.hpp"

namespace reelmesh::pipeline {
namespace {

Existing existing(IfExists choice) {
  return choice == IfExists::fail      ? Existing::fail
         : choice == IfExists::replace ? Existing::replace
                                       : Existing::resume;
}

// The row of a rank of the plan in the trace's table of ranks, with its values now.
RankRecord rank_record(const Devices& found, const Plan& plan, int rank, const Peaks& peaks) {
  const trace::Recorder& recorder = trace::recorder();
  RankRecord record;
  record.host = found.machine.host;
  record.role = plan.roles.of(rank);
  record.device = name_of(found.device);
  record.threads = found.threads;
  record.peak_memory_bytes = peak_memory_bytes();
  record.peak_device_memory_bytes = device_memory(found.device).peak;
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

}  // namespace

RunningJob::RunningJob(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
                       comm::Watchdog* watchdog)
    : ranks_(ranks), job_(job), program_(program), watchdog_(watchdog) {
  trace::recorder() = {};
  trace::recorder().level = static_cast<trace::Level>(job.trace_level);
  const auto age_ns = static_cast<std::int64_t>(process_age() * 1e9);
  trace::record(trace::spans::prepare, trace::now_ns() - age_ns);
}

void RunningJob::find_devices() {
  found_ = find_devices_together(ranks_, job_);
  warn_of_float32(job_, found_.device.is_cuda());
  world_ = found_.launched;
}

void RunningJob::open_output(Product product) {
  comm::run_on_first_rank(world_,
                          [&] { output_.emplace(job_.output, existing(job_.if_exists), product); });
}

void RunningJob::begin_record(const JobPlan& planned, const std::string& model) {
  record_ = job_record(job_, planned, program_, gather_hosts(world_, found_.machine, found_.device),
                       found_.device.is_cuda(), model);
  record_.start = started_;
}

void RunningJob::record_plan(const nlohmann::json& described,
                             const std::optional<Prediction>& prediction) {
  record_.plan = described.at("description");
  if (world_.rank() == 0) record_.plan_json = described.dump(2);  // which writes it
  if (prediction) record_.predicted_seconds = prediction->job;
}

void RunningJob::announce(const std::string& what, const nlohmann::json& described) const {
  log::info("{} {}: {}\nmodel {}, {}\n{}", program_.name, program_.text(), what, job_.model.text(),
            name_of(job_.dtype), plan_text(described, Detail::summary));
}

void RunningJob::begin_status(std::optional<StatusFile>& file, StatusContent content) const {
  if (watchdog_ == nullptr || ranks_.rank() != 0) return;
  file.emplace(job_.output, std::move(content), *watchdog_);
}

void RunningJob::begin_trace(std::optional<TraceWriter>& traces, const Plan& plan,
                             const Peaks& peaks) const {
  if (job_.trace_level == 0) return;
  const trace::Scope scope(trace::spans::prepare);
  const auto level = trace::level_names.at(static_cast<std::size_t>(job_.trace_level));
  traces.emplace(world_, job_.output, std::string(level),
                 [this, &plan, peaks] { return rank_record(found_, plan, world_.rank(), peaks); });
}

void RunningJob::end_trace(std::optional<TraceWriter>& traces,
                           const std::optional<double>& seconds) {
  unsaved_.emplace();
  if (const auto& spans = trace::recorder().device_spans) spans->settle();
  if (traces) traces->finish_together();
  record_.end = iso8601_now();
  if (seconds) record_.measured_seconds = *seconds;
}

Totals RunningJob::totals(std::int64_t done, const char* unit) const {
  return {.done = done,
          .unit = unit,
          .wall_seconds = static_cast<double>(trace::now_ns() - start_) * 1e-9,
          .peak_memory_bytes = peak_memory_bytes(),
          .peak_device_memory_bytes = device_memory(found_.device).peak,
          .memory = memory_by_purpose(found_.device.is_cuda())};
}

Status RunningJob::stopped(const std::string& state) const {
  const auto cause = static_cast<int>(world_.max(std::int64_t{stop::cause()}));
  log::info("stopped on request ({}): {}; run again with --output.if-exists resume to go on",
            stop::cause_text(cause), state);
  return Status::stopped;
}

}  // namespace reelmesh::pipeline
