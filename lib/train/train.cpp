#include "train/train.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/progress.hpp"
#include "base/stop.hpp"
#include "base/system.hpp"
#include "base/trace.hpp"
#include "comm/together.hpp"
#include "forecast/describe.hpp"
#include "job/options.hpp"
#include "job/train_options.hpp"
#include "job/weight_copies.hpp"
#include "ops/pointwise.hpp"
#include "pipeline/new_plan.hpp"
#include "pipeline/running_job.hpp"
#include "store/job.hpp"
#include "store/metrics.hpp"
#include "store/training_restart.hpp"
#include "tensor/memory.hpp"
#include "train/kept.hpp"
#include "train/sampling.hpp"
#include "train/status.hpp"
#include "train/steps.hpp"
#include "weights/config.hpp"
#include "weights/json.hpp"
#include "weights/lora_writer.hpp"
#include "weights/names.hpp"
#include "weights/writer.hpp"

namespace reelmesh::train {
namespace {

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

std::filesystem::path lora_path(const std::filesystem::path& output) {
  return output / "lora" / "pytorch_lora_weights.safetensors";
}

// Of their videos, what the data say of these, and their prompts. What they show of them also
// depends on settings of the fingerprint.
std::string hash_of_samples(const Samples& samples, const std::vector<std::size_t>& which) {
  std::string list;
  for (const std::size_t i : which) {
    const UsableSample& sample = samples.usable[i];
    list += sample.facts.hash;
    if (const auto& start = sample.data.start) list += fmt::format(" from {}", *start);
    if (const auto& end = sample.data.end) list += fmt::format(" to {}", *end);
    list += fmt::format(" {}\n", sample.data.prompt);
  }
  return fmt::format("{:016x}", hash_of(list));
}

// That other programs may not see alpha; empty if it makes no difference.
std::string alpha_note(const TrainSettings& settings) {
  const std::optional<LoraShape> shape = lora_shape(settings);
  const bool is_rank = !shape || (shape->alpha == static_cast<double>(shape->rank) &&
                                  shape->ranks.empty() && shape->alphas.empty());
  if (is_rank || settings.lora.folds_alpha) return {};
  return "lora.alpha is in the file's metadata, which diffusers before 0.35 does not read; with "
         "lora.fold-alpha = yes matrices are written for alpha = rank";
}

const char* const saved_is_kept = "; what was saved before is kept";

// A training on all its ranks, in the order of its functions. Each is collective.
class Training final : public pipeline::RunningJob {
 public:
  Training(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
           comm::Watchdog* watchdog)
      : RunningJob(ranks, job, program, watchdog),
        settings_(*job.train),
        status_(job.train->steps) {}

  // All that can refuse the job comes before anything is loaded, written or removed.
  void plan();
  void open_output();
  void begin_trace() { RunningJob::begin_trace(traces_, samples_.planned.plan, {}); }
  Status encode_and_run();

 private:
  void warn_of_unused_buckets() const;
  void plan_clips();
  bool encode();  // false if the job is to stop
  void plan_again();
  void load_again();
  void load();
  std::int64_t load_model(bool goes_on);
  void run();
  Status report();
  void record_samples();
  std::string fingerprint_of_state() const;
  void note_new_rate();
  nlohmann::json record_plan();
  void check_output() const;
  std::filesystem::path cache() const {
    return settings_.data.cache.empty() ? job_.output / "cache" : settings_.data.cache;
  }
  void write_index(const std::string& status);
  void save(std::int64_t step);
  std::string saved_note() const;
  void write_trained();
  void write_lora();
  void write_transformer();
  std::filesystem::path result() const;
  MetricsForm metrics_form() const;
  bool is_due(std::int64_t every) const {
    return every > 0 && (done_ % every == 0 || done_ >= settings_.steps);
  }
  void validate_if_due(Progress& progress);
  bool is_kept() const;
  void keep();
  void sample_if_due(Progress& progress);
  void check_losses(const std::vector<SampleLoss>& samples, const std::string& where) const;

  const TrainSettings& settings_;

  std::optional<pipeline::NewPlans> new_plans_;
  Samples samples_;
  std::string clips_text_;   // what train.sample-every makes, and how
  std::string fingerprint_;  // of what a saved state depends on
  std::string saved_as_;     // that of the state in the folder
  CachedFiles cached_;
  FilesToMake to_make_;  // of cached_
  TrainingStatus status_;
  std::optional<Steps> steps_;
  std::optional<Metrics> metrics_;  // on the first rank
  std::int64_t before_ = 0;         // steps that were completed before
  std::int64_t done_ = 0;           // completed steps
  std::string validation_note_;     // of the last validation, on the first rank
  std::string loss_note_;           // of the last step
  double saved_at_ = now();
  std::int64_t saved_step_ = -1;
  bool has_begun_ = false;    // all samples are encoded, and the model was loaded
  bool interrupted_ = false;  // a validation or the making of clips, since the job is to stop
  std::optional<TraceWriter> traces_;
  std::optional<pipeline::StatusFile> status_file_;
};

void Training::plan() {
  find_devices();
  std::vector<Bucket> buckets;
  comm::run_collectively(found_.launched, [&] { buckets = checked_buckets(job_); });
  std::vector<VideoSize> sizes;
  for (const Bucket& bucket : buckets) sizes.push_back(bucket.size);
  comm::run_on_first_rank(found_.launched, [&] { check_model(job_); });
  const DataSettings& data = settings_.data;
  const double model_fps = buckets.front().fps;
  const auto usable = [&](const DataList& list) {
    return check_data(found_.launched, read_data_together(found_.launched, data, list), sizes,
                      settings_, model_fps, list, job_.if_exists == IfExists::resume);
  };
  std::vector<UsableSample> learned = usable(learned_clips), validation;
  if (!data.validation.empty()) validation = usable(validation_clips);
  conditions_ = pipeline::agree_on_conditions(job_, found_.launched, found_);
  samples_ = plan_samples(job_, conditions_, std::move(buckets), std::move(learned),
                          std::move(validation));
  warn_of_unused_buckets();
  world_ =
      pipeline::require_plan_fits_together(samples_.clips, samples_.planned, conditions_, found_);
  new_plans_.emplace(samples_.clips, conditions_, found_);
  if (settings_.sample_every > 0) of_sampling([&] { plan_clips(); });
}

void Training::warn_of_unused_buckets() const {
  const auto learned = std::span(samples_.usable).first(static_cast<std::size_t>(samples_.learned));
  for (std::size_t i = 0; i < samples_.buckets.size(); ++i) {
    if (std::ranges::count(learned, i, &UsableSample::bucket) > 0) continue;
    log::warning("data.buckets: {} suits none of the {} videos", shown(samples_.buckets[i].size),
                 samples_.learned);
  }
}

// The job that makes clips plans again, when the model of the training has left the memory to it.
void Training::plan_clips() {
  const Job clips = sampling_job(job_, samples_, 0, {});
  const JobPlan planned =
      plan_sampling(clips, conditions_, check_inputs(found_.launched, clips), settings_);
  pipeline::require_plan_fits_together(clips, planned, conditions_, found_);
  const auto prediction = predict(planned, form_batches(planned.clips, planned.kinds, clips.batch));
  clips_text_ = fmt::format("clips are made {}{}\n{}", when_sampled(settings_),
                            clips_text(planned.clips, planned.kinds),
                            plan_text(describe(planned, {}, prediction), Detail::summary));
}

// On the first rank.
void Training::check_output() const {
  require_inputs_kept(job_, *output_);
  for (const UsableSample& sample : samples_.usable) {
    require_kept(input_file(sample.data), job_, *output_);
  }
  if (settings_.sample_every > 0) output_->require_usable_samples();
  if (job_.if_exists == IfExists::resume) {
    require_training_of(job_.output, saved_as_, settings_.steps);
  }
}

void Training::open_output() {
  RunningJob::open_output(Product::training);
  const std::string model = samples_.planned.family->weights_hash(world_);
  const Computation by{found_.device.is_cuda(), samples_.planned.products};
  Job sized = job_;  // the checkpoint's size and rate, too, as if they were given
  DataSettings& data = sized.train->data;
  const VideoSize& size = samples_.buckets.front().size;
  if (data.buckets.empty()) {
    std::tie(data.height, data.width, data.frames) = std::tie(size.height, size.width, size.frames);
  }
  data.fps = sampled_rate(data, samples_.buckets.front().fps);
  fingerprint_ = fingerprint(model, sized, by);
  // How samples are encoded is in the fingerprint already; the list says which data these are.
  std::vector<std::size_t> learned(static_cast<std::size_t>(samples_.learned));
  std::iota(learned.begin(), learned.end(), 0);
  fingerprint_ += fmt::format(", videos and prompts {}", hash_of_samples(samples_, learned));
  comm::run_on_first_rank(world_, [&] {
    saved_as_ = fingerprint_of_state();
    check_output();
  });
  saved_as_ = world_.broadcast(saved_as_, 0);
  cached_ = cached_files(samples_, cache(), encoders_fingerprint(model, job_, by));
  to_make_ = files_to_make(world_, cached_);
  comm::run_on_first_rank(world_, [&] {
    if (!to_make_.videos.empty() || !to_make_.captions.empty()) prepare_cache(cache());
    output_->prepare();
  });
  begin_record(samples_.planned, model);
  record_samples();
  if (world_.rank() == 0 && job_.if_exists == IfExists::resume) {
    record_.new_rates = read_new_rates(job_.output);
  }
  announce(training_text(samples_.planned, samples_.learned), record_plan());
  if (!clips_text_.empty()) log::info("{}", clips_text_);
  if (const std::string note = alpha_note(settings_); !note.empty()) log::info("{}", note);
  write_index("unfinished");
  begin_status(status_file_, status_.content());
}

// Of the state that the training goes on from, on the first rank: with train.new-rate it may be
// that of another learning rate.
std::string Training::fingerprint_of_state() const {
  if (job_.if_exists != IfExists::resume) return fingerprint_;
  const std::optional<std::string> saved = saved_fingerprint(job_.output);
  if (!saved || *saved == fingerprint_) return fingerprint_;
  const auto [rate, rest] = divided_by_rate(*saved);
  const auto [own_rate, own_rest] = divided_by_rate(fingerprint_);
  if (rest != own_rest) return fingerprint_;  // is refused
  require(
      settings_.new_rate, Status::data,
      "{}: is of another training: found {}, expected {}, or train.new-rate = yes to go on with "
      "it",
      training_restart_path(job_.output).string(), rate, own_rate);
  return *saved;
}

// The log and job.h5 say from which step the learning rate is another.
void Training::note_new_rate() {
  if (saved_as_ == fingerprint_ || before_ == 0) return;
  const std::string line =
      fmt::format("from step {}: {}; before: {}", before_ + 1, divided_by_rate(fingerprint_).rate,
                  divided_by_rate(saved_as_).rate);
  log::info("{}", line);
  std::string& lines = record_.new_rates;
  if (!lines.ends_with(line)) lines += lines.empty() ? line : "\n" + line;
  write_index("unfinished");
}

void Training::record_samples() {
  for (std::size_t i = 0; world_.rank() == 0 && i < samples_.usable.size(); ++i) {
    const UsableSample& sample = samples_.usable[i];
    const auto file = [](const CachedSample& cached) {
      return JobSample::File{cached.path, names_of_arrays(cached.shapes)};
    };
    record_.samples.push_back({sample.index, std::cmp_greater_equal(i, samples_.learned),
                               sample.data.prompt, sample.data.video.string(),
                               file(cached_.videos[i]), file(cached_.captions[i])});
  }
}

nlohmann::json Training::record_plan() {
  const std::optional<Prediction> prediction = predict(samples_.planned, {});
  nlohmann::json described = describe(samples_.planned, {}, prediction);
  RunningJob::record_plan(described, prediction);
  return described;
}

void Training::write_index(const std::string& status) {
  record_.status = status;
  comm::run_on_first_rank(world_, [&] { write_job(job_.output, record_); });
}

bool Training::encode() {
  status_.set_state("encoding samples");
  while (!encode_samples(world_, samples_, cached_, to_make_,
                         {job_.dtype, job_.numerics, found_.device}, new_plans_->watch())) {
    if (!new_plans_->wanted_together(world_)) return false;
    plan_again();
    to_make_ = files_to_make(world_, cached_);
  }
  return true;
}

// All ranks have left for lack of memory, and have released what they had loaded.
void Training::plan_again() {
  const auto plan = [&](const Job& clips, const Conditions& conditions) {
    train::plan_again(samples_, job_, clips, conditions);
  };
  record_.planned_again.push_back(new_plans_->make_together(world_, samples_.planned, plan));
  (void)record_plan();
  write_index("unfinished");
}

// As by a training that goes on, in another layout.
void Training::load_again() {
  if (saved_step_ != done_) save(done_);
  steps_.reset();
  world_.barrier();  // the state is saved
  plan_again();
  (void)load_model(true);
}

// → the steps that were done. goes_on: from the saved state, if there is one.
std::int64_t Training::load_model(bool goes_on) {
  steps_.emplace(world_, samples_, cached_, settings_,
                 pipeline::Computing{job_.dtype, job_.numerics, found_.device});
  std::int64_t done = 0;
  if (steps_->trains()) {
    if (goes_on) done = steps_->read_restart(job_.output, saved_as_);
    steps_->use_values_together();
  }
  return world_.max(done);
}

void Training::load() {
  status_.set_state("loading the model");
  new_plans_->watch().look(pipeline::Stage::denoise, samples_.planned.plan, world_.rank());
  if (new_plans_->wanted_together(world_)) plan_again();
  before_ = done_ = load_model(job_.if_exists == IfExists::resume);
  status_.set_begun(before_);
  has_begun_ = true;
  if (before_ > 0) {
    log::info("{} steps were done before, {} are asked for", before_, settings_.steps);
  }
  note_new_rate();
  if (world_.rank() == 0) metrics_.emplace(job_.output, metrics_form(), before_);
  if (before_ > 0 && is_kept()) {  // the job may have been killed before it was
    const trace::Scope scope(trace::spans::save);
    write_trained();
    keep();
  }
  if (settings_.validate_every == 0) return;
  const DataSettings& data = settings_.data;
  const auto clips = std::ssize(samples_.validating());
  log::info("validation after each {} steps on {} clip{} of {}", settings_.validate_every, clips,
            clips == 1 ? "" : "s",
            data.validation.empty() ? "the training data, as data.validation is not given"
                                    : shown(data.validation));
}

MetricsForm Training::metrics_form() const {
  const std::int64_t timesteps = samples_.buckets.front().noise.timesteps;
  MetricsForm form{.batch = settings_.batch, .timesteps = timesteps};
  if (settings_.validate_every == 0) return form;
  for (int quarter = 0; quarter < validation_quarters; ++quarter) {
    form.validation.push_back(static_cast<std::int32_t>(validation_timestep(quarter, timesteps)));
  }
  form.clips = hash_of_samples(samples_, samples_.validating());
  return form;
}

// What is trained.
std::filesystem::path Training::result() const {
  switch (settings_.method->files) {
    case TrainedFiles::lora:
      return lora_path(job_.output);
    case TrainedFiles::transformer:
      return job_.output / "transformer";
  }
  fail(Status::internal, "files of another kind");
}

void Training::write_trained() {
  if (!steps_->trains()) return;
  switch (settings_.method->files) {
    case TrainedFiles::lora:
      return write_lora();
    case TrainedFiles::transformer:
      return write_transformer();
  }
}

// The first rank keeps all parameters in the type that the model computes with, until the file is
// written.
void Training::write_transformer() {
  const Trainable& model = steps_->model();
  std::vector<TensorToWrite> tensors;
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < model.matrices().size(); ++i) {
    const Tensor values = steps_->results_together(i, 1).front();
    if (world_.rank() != 0) continue;
    all.push_back(values.reshape(model.stored_shape(i)).to(job_.dtype));
    tensors.push_back({model.matrices()[i].name, job_.dtype, all.back().shape()});
  }
  if (world_.rank() != 0) return;
  // What is not trained: position tables, the embedding of the empty caption.
  const Checkpoint checkpoint = samples_.planned.family->open(ModelPart::transformer);
  for (const auto& [name, info] : checkpoint.tensors()) {
    const bool is_trained = std::ranges::find(model.matrices(), current_name(name),
                                              &TrainedMatrix::name) != model.matrices().end();
    const std::optional<DType> dtype = loadable(info.dtype);
    if (is_trained || !dtype || checkpoint.describes_others(name)) continue;
    all.push_back(checkpoint.load(name, info.shape, *dtype));
    tensors.push_back({name, *dtype, info.shape});
  }
  const std::filesystem::path folder = job_.output / "transformer";
  const std::string config =
      read_text(samples_.planned.family->paths().transformer / "config.json", max_config_bytes);
  std::filesystem::create_directories(folder);
  NewFile file(folder / "config.json");
  file.write(config);
  file.commit();
  write_safetensors(
      folder, weights_stem(ModelPart::transformer), tensors,
      [&](std::size_t i, Tensor& out) { out.copy_from(all[i]); },
      std::numeric_limits<std::int64_t>::max());
}

void Training::write_lora() {
  const Trainable& model = steps_->model();
  const std::vector<Tensor> values = steps_->results_together(0, model.matrices().size());
  if (world_.rank() != 0) return;
  const LoraShape shape = lora_shape(settings_).value();
  LoraToWrite lora{.rank = shape.rank, .alpha = shape.alpha, .targets = shape.targets};
  for (std::size_t i = 0; i < model.targets().size(); ++i) {
    const LoraTarget& target = model.targets()[i];
    lora.modules.push_back(
        {target.module, target.alpha, values[2 * i], transposed(values[2 * i + 1])});
    if (!settings_.lora.folds_alpha) continue;
    LoraMatrices& folded = lora.modules.back();
    folded.up = ops::scaled(folded.up, static_cast<float>(target.factor()));
    folded.alpha = static_cast<double>(target.rank);
  }
  if (settings_.lora.folds_alpha) lora.alpha = static_cast<double>(lora.rank);
  reelmesh::write_lora(job_.output / "lora", lora);
}

void Training::save(std::int64_t step) {
  comm::run_on_first_rank(world_, [&] { metrics_->write(); });
  if (steps_->trains()) {
    const trace::Scope scope(trace::spans::save);
    steps_->write_restart(job_.output, step, fingerprint_);
    write_trained();
  }
  saved_as_ = fingerprint_;
  unsaved_.reset();
  status_.set_saved(step);
  saved_step_ = step;
  saved_at_ = now();
}

// For lines of the log, of which the last may be that before the job is killed.
std::string Training::saved_note() const {
  const std::int64_t saved = std::max(saved_step_, before_);
  if (saved == done_) return {};
  return saved > 0 ? fmt::format(", saved: step {}", saved) : ", nothing saved";
}

// On the first rank. where: "step 3 of 5".
void Training::check_losses(const std::vector<SampleLoss>& samples,
                            const std::string& where) const {
  const auto failed = std::ranges::find_if(
      samples, [](const SampleLoss& sample) { return !std::isfinite(sample.loss); });
  if (failed == samples.end()) return;
  const DataSample& data = samples_.usable[static_cast<std::size_t>(failed->sample)].data;
  fail(Status::data,
       "{}: the loss of {}: {}, at timestep {}, is not finite, found first on rank {}{}", where,
       data.where, data.video.string(), failed->timestep, failed->failed_rank, saved_is_kept);
}

// Before the first step, after each train.validate-every, and after the last; again if a training
// that goes on has lost it.
void Training::validate_if_due(Progress& progress) {
  if (!is_due(settings_.validate_every)) return;
  const bool is_known = world_.rank() == 0 && metrics_->has_validation(done_);
  if (world_.max(std::int64_t{is_known ? 1 : 0}) > 0) return;
  progress.pause();
  status_.set_state("validating");
  std::optional<ValidationResult> result;
  if (steps_->trains()) result = steps_->validate_together();
  progress.resume();
  const bool stops = steps_->trains() && !result;
  interrupted_ = world_.max(std::int64_t{stops ? 1 : 0}) > 0;
  if (interrupted_) return;
  comm::run_on_first_rank(world_, [&] {
    check_losses(result->samples,
                 fmt::format("validation after {} of {} steps", done_, settings_.steps));
    std::string losses;
    double mean = 0;
    for (std::size_t i = 0; i < result->loss.size(); ++i) {
      mean += result->loss[i] / validation_quarters;
      losses += fmt::format("{}{:.4f} at {}", i == 0 ? "" : ", ", result->loss[i],
                            result->samples[i].timestep);
    }
    log::info("validation after {} steps: loss {:.4f}; by timestep: {}", done_, mean, losses);
    validation_note_ = fmt::format(", validation {:.4f}", mean);
    metrics_->add_validation({result->loss.begin(), result->loss.end()});
  });
}

// Whether what is trained now is kept beside the last result. Collective.
bool Training::is_kept() const {
  switch (settings_.keep.what) {
    case KeepRule::What::none:
      return false;
    case KeepRule::What::all:
    case KeepRule::What::last:
      return is_due(settings_.save_every);
    case KeepRule::What::best: {
      if (!is_due(settings_.validate_every)) return false;
      const bool is_best = world_.rank() == 0 && metrics_->best_step() == done_;
      return world_.max(std::int64_t{is_best ? 1 : 0}) > 0;
    }
  }
  fail(Status::internal, "another rule of results that are kept");
}

void Training::keep() {
  comm::run_on_first_rank(world_,
                          [&] { keep_result(job_.output, result(), done_, settings_.keep); });
}

// As validate_if_due. `run` makes the clips with the file that was saved, in the memory that the
// model of the training had; then that is loaded again, as by a training that goes on.
void Training::sample_if_due(Progress& progress) {
  if (!is_due(settings_.sample_every) || interrupted_) return;
  progress.pause();
  status_.set_state("making clips");
  if (saved_step_ != done_) save(done_);
  steps_.reset();
  release_free_memory();
  world_.barrier();  // the first rank has written what is trained
  interrupted_ = world_.max(std::int64_t{stop::cause()}) != stop::none;
  if (!interrupted_) {
    const Job clips = sampling_job(job_, samples_, done_, result());
    const Status status = make_clips_together(ranks_, clips, program_);
    interrupted_ = status == Status::stopped;
    if (status == Status::data) {
      log::warning("after {} steps not all clips could be made; the training goes on", done_);
    }
    release_free_memory();
  }
  if (!interrupted_) {
    log::info("clips made after {} steps: {}", done_, sampling_folder(job_.output, done_).string());
    if (done_ < settings_.steps) (void)load_model(true);
  }
  progress.resume();
}

void Training::run() {
  Progress progress("training", std::max<std::int64_t>(1, settings_.steps - done_), "step",
                    ProgressLine::standard_error(world_.rank() == 0));
  saved_at_ = now();
  validate_if_due(progress);
  sample_if_due(progress);
  bool stops = interrupted_;
  while (done_ < settings_.steps && !stops) {
    if (!unsaved_) unsaved_.emplace();
    status_.set_state("training");
    const double began = now();
    StepResult result;
    const bool trains = steps_->trains();
    if (trains) result = steps_->step_together(done_);
    const double seconds = now() - began;
    const std::int64_t step = done_ + 1;
    comm::run_on_first_rank(world_, [&] {
      const std::string where = fmt::format("step {} of {}", step, settings_.steps);
      check_losses(result.samples, where);
      require(std::isfinite(result.gradient_norm), Status::data,
              "{}: found {} as the norm of the gradient, expected a finite number{}", where,
              result.gradient_norm, saved_is_kept);
      std::vector<SampleMetrics> samples;
      for (const SampleLoss& sample : result.samples) {
        const UsableSample& of = samples_.usable[static_cast<std::size_t>(sample.sample)];
        samples.push_back({static_cast<std::int32_t>(of.index),
                           static_cast<std::int32_t>(std::lround(sample.timestep)), sample.loss});
      }
      metrics_->add({result.loss, result.gradient_norm, result.learning_rate, seconds}, samples);
    });
    done_ = step;
    // Ranks that the layout leaves idle have no loss.
    constexpr double none = -std::numeric_limits<double>::infinity();
    status_.set_completed(step, world_.max(trains ? result.loss : none), seconds);
    validate_if_due(progress);
    sample_if_due(progress);
    if (trains) {
      loss_note_ = fmt::format("step {}: loss {:.4f}{}", step, result.loss, validation_note_);
    }
    progress.note(loss_note_ + saved_note());
    progress.advance();
    const bool kept = !interrupted_ && is_kept();
    const bool due = kept || job_.restart.is_due(step, now() - saved_at_) ||
                     (settings_.save_every > 0 && step % settings_.save_every == 0);
    new_plans_->watch().look(pipeline::Stage::denoise, samples_.planned.plan, world_.rank());
    std::vector<std::int64_t> votes{stop::cause(), due ? 1 : 0, stop::new_plan_requested() ? 1 : 0};
    world_.max(votes);
    stops = votes[0] != stop::none;
    if ((stops || votes[1] > 0) && saved_step_ != done_) save(done_);
    if (kept) keep();
    if (votes[2] > 0 && done_ < settings_.steps && new_plans_->wanted_together(world_)) {
      load_again();
    }
  }
  progress.note(loss_note_);
  progress.finish();
  if (saved_step_ != done_) save(done_);
}

Status Training::report() {
  const bool complete = has_begun_ && done_ >= settings_.steps && !interrupted_;
  end_trace(traces_, complete ? std::optional(process_age()) : std::nullopt);
  write_index(complete ? "complete" : "stopped");
  if (status_file_) status_file_->remove();
  const std::string report =
      pipeline::closing_report(world_, trace::recorder(), totals(done_ - before_, "step"));
  log::info("{}{}{}", report, loss_note_.empty() ? "" : loss_note_ + "\n",
            has_begun_ ? fmt::format("results: {}", result().string()) : "");
  if (complete) return Status::ok;
  return stopped(has_begun_
                     ? fmt::format("{} of {} steps are done and saved", done_, settings_.steps)
                     : "samples that are encoded are kept");
}

Status Training::encode_and_run() {
  if (!job_.copies.empty()) copy_weights_together(world_, job_.model, job_.copies);
  if (encode()) {
    load();
    run();
  }
  return report();
}

}  // namespace

Status train(const comm::Group& ranks, const Job& job, const ProgramInfo& program,
             comm::Watchdog* watchdog) {
  Training training(ranks, job, program, watchdog);
  {
    const trace::Scope scope(trace::spans::prepare);
    training.plan();
    training.open_output();
  }
  training.begin_trace();
  return training.encode_and_run();
}

}  // namespace reelmesh::train
