#pragma once
// What a job has from its start to its end, whether it makes clips or trains.
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file_state.hpp"
#include "base/stop.hpp"
#include "forecast/prediction.hpp"
#include "job/job_record.hpp"
#include "pipeline/report.hpp"
#include "pipeline/start.hpp"
#include "pipeline/status_file.hpp"
#include "store/output_folder.hpp"
#include "store/trace.hpp"

namespace reelmesh::pipeline {

/// On all its ranks; functions are collective. Derived classes call them in this order, with what
/// they do themselves in between.
class RunningJob {
 public:
  RunningJob(const RunningJob&) = delete;
  RunningJob& operator=(const RunningJob&) = delete;

 protected:
  /// job, program and watchdog must outlive the object. watchdog: null: there is no status.json.
  RunningJob(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
             comm::Watchdog* watchdog);
  ~RunningJob() = default;

  /// Errors as find_devices_together.
  void find_devices();
  /// Refuses a folder that cannot be used, on the first rank of the plan; nothing is changed yet.
  void open_output(Product product);
  /// Sets record_ but for what is made. model: hash of the weights.
  void begin_record(const JobPlan& planned, const std::string& model);
  /// described: by describe().
  void record_plan(const nlohmann::json& described, const std::optional<Prediction>& prediction);
  /// Says what the job makes, with which model, and how.
  void announce(const std::string& what, const nlohmann::json& described) const;
  // file, traces: the last members of the derived class, since they refer to others.
  void begin_status(std::optional<StatusFile>& file, StatusContent content) const;
  /// Unless the job asks for none; then a trace that is there says how it was made.
  void begin_trace(std::optional<TraceWriter>& traces, const Plan& plan, const Peaks& peaks) const;
  /// What is written from here on is saved though the job is asked to stop. seconds: how long it
  /// took if it is complete.
  void end_trace(std::optional<TraceWriter>& traces, const std::optional<double>& seconds);
  /// Of this process and its work, beside what is made.
  Totals totals(std::int64_t done, const char* unit) const;
  /// Says why the job stops, and how it goes on. state: what is kept.
  Status stopped(const std::string& state) const;

  std::optional<stop::UnsavedWork> unsaved_;  // until all else is freed
  const comm::Group ranks_;                   // as launched
  const Job& job_;
  const ProgramInfo& program_;
  comm::Watchdog* const watchdog_;
  Devices found_;
  comm::Group world_;  // in plan order
  Conditions conditions_;
  std::optional<OutputFolder> output_;  // on the first rank
  JobRecord record_;

 private:
  const std::int64_t start_ = trace::now_ns();
  const std::string started_ = iso8601_now();
  const FilesInUse files_;
};

}  // namespace reelmesh::pipeline
