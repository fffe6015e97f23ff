#include "train/train.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "base/device_spans.hpp"
#include "base/file_state.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/progress.hpp"
#include "base/stop.hpp"
#include "base/trace.hpp"
#include "comm/together.hpp"
#include "job/options.hpp"
#include "pipeline/report.hpp"
#include "store/metrics.hpp"
#include "store/training_restart.hpp"
#include "train/steps.hpp"
#include "weights/lora_writer.hpp"

namespace reelmesh::train {
namespace {

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

// A training on all its ranks, in the order of its functions. Each is collective.
class Training {
 public:
  Training(const comm::Group& ranks, const Job& job, const ProgramInfo& program)
      : ranks_(ranks), job_(job), settings_(*job.train), program_(program) {
    trace::recorder() = {};
    trace::recorder().level = static_cast<trace::Level>(job.trace_level);
  }

  // All that can refuse the job comes before anything is loaded, written or removed.
  void plan();
  void open_output();
  void encode();
  void load();
  Status run();

 private:
  std::filesystem::path cache() const {
    return settings_.data.cache.empty() ? job_.output / "cache" : settings_.data.cache;
  }
  void write_index(const std::string& status);
  void save(std::int64_t step);
  void write_lora();
  [[noreturn]] void refuse(const StepResult& step, std::int64_t number) const;

  std::optional<stop::UnsavedWork> unsaved_;
  const std::int64_t start_ = trace::now_ns();
  const FilesInUse files_;
  comm::Group ranks_;  // as launched
  const Job& job_;
  const TrainSettings& settings_;
  const ProgramInfo& program_;

  pipeline::Devices found_;
  comm::Group world_;  // in plan order
  Samples samples_;
  std::optional<OutputFolder> output_;  // on the first rank
  std::string fingerprint_;             // of what a saved state depends on
  std::vector<CachedSample> cached_;
  JobRecord record_;
  std::optional<TraceWriter> traces_;
  std::optional<Steps> steps_;
  std::optional<Metrics> metrics_;  // on the first rank
  std::int64_t done_ = 0;           // completed steps
};

void Training::plan() {
  found_ = pipeline::find_devices_together(ranks_, job_);
  comm::run_on_first_rank(found_.launched, [&] { Family::open(job_.model)->check_weights(true); });
  const DataSettings& data = settings_.data;
  samples_ = plan_samples(job_, pipeline::agree_on_conditions(job_, found_.launched, found_),
                          check_data(found_.launched, read_data_together(found_.launched, data),
                                     sample_size(job_), data));
  std::vector<int> order;
  for (const LaunchedRank rank : samples_.planned.plan.launched) order.push_back(number_of(rank));
  world_ = std::ranges::is_sorted(order) ? found_.launched : found_.launched.in_order(order);
  const std::string idle = describe_idle(samples_.planned.plan.roles, world_.size());
  if (!idle.empty()) log::warning("{}", idle);
}

void Training::open_output() {
  comm::run_on_first_rank(
      world_, [&] { output_.emplace(job_.output, pipeline::existing(job_.if_exists)); });
  const std::string model = samples_.planned.family->weights_hash(world_);
  const Computation by{found_.device.is_cuda(), samples_.planned.products};
  fingerprint_ = fingerprint(model, job_, by);
  // What samples are is in their files; the order of their hashes says which data these are.
  std::string hashes;
  for (const UsableSample& sample : samples_.usable) hashes += sample.facts.hash;
  fingerprint_ += fmt::format(", data {:016x}", hash_of(hashes));
  cached_ = cached_samples(samples_, cache(),
                           fmt::format("model {}, dtype {}", model, name_of(job_.dtype)));
  comm::run_on_first_rank(world_, [&] { output_->prepare(); });
  record_ =
      job_record(world_, job_, samples_.planned, program_, found_.machine, found_.device, model);
  record_.start = iso8601_now();
  const Roles& roles = samples_.planned.plan.roles;
  const Mesh& mesh = samples_.planned.plan.sizes.front().denoise[0].mesh;
  record_.plan =
      fmt::format("training of {} clips of {} frames of {} x {} pixels on {} {}: {} {} of {} {}\n",
                  samples_.usable.size(), samples_.size.frames, samples_.size.height,
                  samples_.size.width, world_.size(), world_.size() == 1 ? "rank" : "ranks",
                  roles.denoise.size(), roles.denoise.size() == 1 ? "replica" : "replicas",
                  mesh.ranks(), mesh.ranks() == 1 ? "rank" : "ranks");
  log::info("{} {}: {}model {}, {}, LoRA of rank {}", program_.name, program_.described(),
            record_.plan, job_.model.described(), name_of(job_.dtype), settings_.lora.rank);
  write_index("unfinished");
  if (job_.trace_level > 0) {
    const auto level = trace::level_names.at(static_cast<std::size_t>(job_.trace_level));
    traces_.emplace(world_, job_.output, std::string(level), [this] {
      return pipeline::rank_record(found_, samples_.planned.plan, world_.rank(), {});
    });
  }
}

void Training::write_index(const std::string& status) {
  record_.status = status;
  comm::run_on_first_rank(world_, [&] { write_job(job_.output, record_); });
}

void Training::encode() {
  encode_samples(world_, samples_, cached_, cache(), {job_.dtype, job_.numerics, found_.device});
}

void Training::load() {
  steps_.emplace(world_, samples_, cached_, settings_,
                 pipeline::Computing{job_.dtype, job_.numerics, found_.device});
  if (steps_->trains()) {
    if (job_.if_exists == IfExists::resume) {
      done_ = steps_->read_restart(job_.output, fingerprint_);
    }
    steps_->use_values_together();
  }
  done_ = world_.max(done_);
  if (done_ > 0) log::info("{} of {} steps were done before", done_, settings_.steps);
  if (world_.rank() == 0) metrics_.emplace(job_.output, done_);
}

void Training::write_lora() {
  if (!steps_->trains()) return;
  const std::vector<LoraValues> values = steps_->values_together();
  if (world_.rank() != 0) return;
  LoraToWrite lora{.rank = settings_.lora.rank,
                   .alpha = settings_.lora.alpha.value_or(static_cast<double>(settings_.lora.rank)),
                   .targets = settings_.lora.targets};
  for (std::size_t i = 0; i < values.size(); ++i) {
    lora.modules.push_back({steps_->targets()[i].module, values[i].down, transposed(values[i].up)});
  }
  reelmesh::write_lora(job_.output / "lora", lora);
}

void Training::save(std::int64_t step) {
  comm::run_on_first_rank(world_, [&] { metrics_->write(); });
  if (steps_->trains()) steps_->write_restart(job_.output, step, fingerprint_);
  write_lora();
  unsaved_.reset();
}

void Training::refuse(const StepResult& step, std::int64_t number) const {
  require(step.failed_sample >= 0, Status::data,
          "step {}: the norm of the gradient is not finite, the loss is {}; what was saved before "
          "is kept",
          number, step.loss);
  const UsableSample& sample = samples_.usable[static_cast<std::size_t>(step.failed_sample)];
  fail(Status::data,
       "step {}: the loss of {} ({}), at timestep {}, is not finite, found first on rank {}; what "
       "was saved before is kept",
       number, sample.data.video.string(), sample.data.where, step.timestep, step.failed_rank);
}

Status Training::run() {
  Progress progress("training", std::max<std::int64_t>(1, settings_.steps - done_), "step",
                    Progress::standard_error(world_.rank() == 0));
  double saved_at = now();
  std::int64_t saved_step = done_;
  int cause = stop::none;
  std::int64_t step = done_;
  for (; step < settings_.steps && cause == stop::none; ++step) {
    if (!unsaved_) unsaved_.emplace();
    const double began = now();
    StepResult result;
    if (steps_->trains()) result = steps_->step_together(step);
    const double seconds = now() - began;
    const RestartSettings& restart = job_.restart;
    const std::int64_t next = step + 1;
    bool due = restart.every_steps > 0 && next % restart.every_steps == 0;
    due = due || (settings_.save_every > 0 && next % settings_.save_every == 0);
    due = due || (restart.every_seconds > 0 && now() - saved_at >= restart.every_seconds);
    const bool failed = result.failed_sample >= 0 || !std::isfinite(result.gradient_norm);
    std::vector<std::int64_t> votes{stop::cause(), due ? 1 : 0, failed ? 1 : 0};
    world_.max(votes);
    if (votes[2] > 0) {
      comm::run_on_first_rank(world_, [&] { refuse(result, step); });
    }
    comm::run_on_first_rank(world_, [&] {
      metrics_->add({result.loss, result.gradient_norm, result.learning_rate, seconds});
    });
    progress.note(fmt::format("step {}: loss {:.4f}", next, result.loss));
    progress.advance();
    cause = static_cast<int>(votes[0]);
    if (cause == stop::none && votes[1] == 0) continue;
    save(next);
    saved_step = next;
    saved_at = now();
  }
  progress.finish();
  if (saved_step != step || step == done_) save(step);
  const bool complete = step == settings_.steps;
  unsaved_.emplace();
  if (const auto& spans = trace::recorder().device_spans) spans->settle();
  if (traces_) traces_->finish_together();
  record_.end = iso8601_now();
  write_index(complete ? "complete" : "stopped");
  pipeline::Totals totals{.done = step - done_, .unit = "step"};
  totals.wall_seconds = static_cast<double>(trace::now_ns() - start_) * 1e-9;
  totals.peak_memory_bytes = peak_memory_bytes();
  totals.peak_device_memory_bytes = device_memory(found_.device).peak;
  totals.memory = memory_by_purpose(found_.device.is_cuda());
  const std::string report = pipeline::closing_report(world_, trace::recorder(), totals);
  log::info("{}results: {}", report,
            (job_.output / "lora" / "pytorch_lora_weights.safetensors").string());
  if (complete) return Status::ok;
  log::info(
      "stopped on request ({}): {} of {} steps are done and saved; run again with "
      "--output.if-exists resume to go on",
      stop::describe(cause), step, settings_.steps);
  return Status::stopped;
}

}  // namespace

Status train(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
             comm::Watchdog* /*watchdog*/) {
  Training training(ranks, job, program);
  training.plan();
  training.open_output();
  training.encode();
  training.load();
  return training.run();
}

}  // namespace reelmesh::train
