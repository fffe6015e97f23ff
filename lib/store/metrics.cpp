#include "store/metrics.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.hpp"
#include "store/axes.hpp"
#include "store/check.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

struct StepColumn {
  const char* name;
  const char* meaning;
  const char* units;
  double StepMetrics::*value;
};

constexpr std::array<StepColumn, 4> columns{{
    {"loss", "mean loss of the clips of the step", "1", &StepMetrics::loss},
    {"gradient_norm", "norm of the gradient of all parameters, before clipping", "1",
     &StepMetrics::gradient_norm},
    {"learning_rate", "learning rate", "1", &StepMetrics::learning_rate},
    {"seconds", "wall time of the step", "s", &StepMetrics::seconds},
}};
static_assert(columns.size() * sizeof(double) == sizeof(StepMetrics),
              "a value of a step is not described in columns");

// An array [step, place] of a value of each sample. These arrays are stored as a whole: those with
// several axes are otherwise in chunks of one index of the first, here of a few bytes.
template <class Value>
struct SampleColumn {
  const char* name;
  const char* meaning;
  Value SampleMetrics::*value;
};
constexpr SampleColumn<std::int32_t> sample_column{
    "sample", "which sample of the data, as in the names of encoded samples",
    &SampleMetrics::sample};
constexpr SampleColumn<std::int32_t> timestep_column{
    "timestep", "timestep of the noise of the sample", &SampleMetrics::timestep};
constexpr SampleColumn<double> loss_column{"sample_loss", "loss of the sample",
                                           &SampleMetrics::loss};
void for_each_sample_column(const auto& visit) {
  visit(sample_column);
  visit(timestep_column);
  visit(loss_column);
}

constexpr Axis step_axis{"step", "step of the training, from 0"};
constexpr Axis place_axis{"place", "place of the sample in the batch"};
constexpr Axis validation_step_axis{"validation_step", "steps that were done before a validation"};
constexpr Axis validation_timestep_axis{"validation_timestep", "timestep of the noise"};
constexpr const char *validation_loss_name = "validation_loss", *clips_name = "clips";

hid_t native(double) { return H5T_NATIVE_DOUBLE; }
hid_t native(std::int32_t) { return H5T_NATIVE_INT32; }

// The values of an array that is stored as a whole; empty if there are none, or damaged ones.
template <class Value>
std::optional<std::vector<Value>> read_whole(hid_t file, const char* name, const Shape& shape) {
  const hid_t type = native(Value{});
  if (numel(shape) == 0 || !hdf5::holds_whole(file, name, type, shape)) return std::nullopt;
  const hdf5::Dataset dataset = hdf5::open_dataset(file, name);
  const std::string bytes = hdf5::read_box(dataset.get(), type, whole_box(shape));
  std::vector<Value> values(bytes.size() / sizeof(Value));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

template <class Value>
void write_checksum(hid_t dataset, const std::vector<Value>& values, std::int64_t indices) {
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                               values.size() * sizeof(Value));
  hdf5::write_attribute(dataset, checksum_name, combined(hashes_of_indices(bytes, indices)));
}

template <class Value>
hdf5::Dataset write_array(hid_t file, const char* name, const std::vector<Value>& values,
                          const Shape& shape, hdf5::Storage storage = hdf5::Storage::whole) {
  const hid_t type = native(Value{});
  hdf5::Dataset dataset = hdf5::create_dataset(file, name, type, shape, storage);
  hdf5::write_all(dataset.get(), type, values.data());
  write_checksum(dataset.get(), values, shape[0]);
  return dataset;
}

// As many rows as all columns of the file have.
std::vector<StepMetrics> read_rows(hid_t file) {
  const auto shape = hdf5::dataset_shape(file, columns[0].name, H5T_NATIVE_DOUBLE);
  if (!shape || shape->size() != 1) return {};
  for (const StepColumn& column : columns) {
    if (!hdf5::holds(file, column.name, H5T_NATIVE_DOUBLE, *shape)) return {};
  }
  std::vector<StepMetrics> rows(static_cast<std::size_t>(shape->front()));
  for (const StepColumn& column : columns) {
    const hdf5::Dataset dataset = hdf5::open_dataset(file, column.name);
    const std::string bytes = hdf5::read_box(dataset.get(), H5T_NATIVE_DOUBLE, whole_box(*shape));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(&(rows[i].*column.value), bytes.data() + i * sizeof(double), sizeof(double));
    }
  }
  return rows;
}

// Of all steps; those of arrays that the file does not have are lost.
std::vector<SampleMetrics> read_samples(hid_t file, const Shape& shape) {
  std::vector<SampleMetrics> samples(static_cast<std::size_t>(numel(shape)));
  for_each_sample_column([&]<class Value>(const SampleColumn<Value>& column) {
    const auto values = read_whole<Value>(file, column.name, shape);
    if (!values) return;
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i].*column.value = (*values)[i];
  });
  return samples;
}

}  // namespace

std::filesystem::path metrics_path(const std::filesystem::path& folder) {
  return folder / "metrics.h5";
}

Metrics::Metrics(std::filesystem::path folder, MetricsForm form, std::int64_t done)
    : folder_(std::move(folder)), form_(std::move(form)), next_(Clock::now()) {
  const auto count = static_cast<std::size_t>(done);
  const hdf5::File file = count > 0 ? hdf5::open_if_valid(metrics_path(folder_)) : hdf5::File();
  if (file && hdf5::is_known_version(file.get())) {
    rows_ = read_rows(file.get());
    samples_ = read_samples(file.get(), {steps(), form_.batch});
    read_validations(file.get(), done);
  }
  if (rows_.size() < count) {
    log::warning("{}: found {} steps, expected {}; those that are missing become NaN",
                 metrics_path(folder_).string(), rows_.size(), count);
  }
  written_ = rows_.empty() && count == 0;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  rows_.resize(count, {nan, nan, nan, nan});
  samples_.resize(count * static_cast<std::size_t>(form_.batch));
}

// Those after at most `done` steps.
void Metrics::read_validations(hid_t file, std::int64_t done) {
  const auto shape = hdf5::dataset_shape(file, validation_loss_name, H5T_NATIVE_DOUBLE);
  if (!shape || shape->size() != 2) return;
  const auto steps =
      read_whole<std::int32_t>(file, validation_step_axis.name.data(), {shape->front()});
  const auto timesteps =
      read_whole<std::int32_t>(file, validation_timestep_axis.name.data(), {shape->back()});
  const auto losses = read_whole<double>(file, validation_loss_name, *shape);
  constexpr std::size_t max_clips = 1024;
  const hdf5::Dataset dataset = hdf5::open_dataset(file, validation_loss_name);
  const auto clips = hdf5::read_text(dataset.get(), clips_name, max_clips);
  const bool whole = steps && timesteps && losses && clips;
  if (whole && form_.validation.empty()) {  // this job has no validations of its own
    form_.validation = *timesteps;
    form_.clips = *clips;
  }
  if (!whole || form_.validation != *timesteps || form_.clips != *clips) {
    log::warning("{}: its validation losses {}, and are left out", metrics_path(folder_).string(),
                 whole ? "are of other clips than those of this job" : "cannot be read");
    return;
  }
  for (std::size_t i = 0; i < steps->size(); ++i) {
    const auto row = losses->begin() + static_cast<std::ptrdiff_t>(i) * shape->back();
    if ((*steps)[i] <= done) validations_.push_back({(*steps)[i], {row, row + shape->back()}});
  }
}

void Metrics::write_rows(hid_t file) const {
  hdf5::write_title(file, fmt::format("{} steps of a training by reelmesh", rows_.size()));
  Scales scales(file);
  const Shape shape{steps()}, of_samples{steps(), form_.batch};
  for (const StepColumn& column : columns) {
    std::vector<double> values(rows_.size());
    std::ranges::transform(rows_, values.begin(),
                           [&](const StepMetrics& row) { return row.*column.value; });
    const hdf5::Dataset dataset =
        write_array(file, column.name, values, shape, hdf5::Storage::deflated_chunks);
    hdf5::describe(dataset.get(), column.meaning, column.units);
    scales.attach(dataset.get(), {step_axis}, shape);
  }
  for_each_sample_column([&]<class Value>(const SampleColumn<Value>& column) {
    std::vector<Value> values(samples_.size());
    std::ranges::transform(samples_, values.begin(),
                           [&](const SampleMetrics& sample) { return sample.*column.value; });
    const hdf5::Dataset dataset = write_array(file, column.name, values, of_samples);
    hdf5::describe(dataset.get(), column.meaning, "1");
    if (column.name == std::string_view(timestep_column.name)) {
      hdf5::write_attribute(dataset.get(), "timesteps", form_.timesteps);
    }
    scales.attach(dataset.get(), {step_axis, place_axis}, of_samples);
  });
  if (validations_.empty()) return;
  std::vector<std::int32_t> at;
  std::vector<double> losses;
  for (const ValidationMetrics& validation : validations_) {
    at.push_back(static_cast<std::int32_t>(validation.step));
    losses.insert(losses.end(), validation.loss.begin(), validation.loss.end());
  }
  const auto add_scale = [&](const Axis& axis, const std::vector<std::int32_t>& values) {
    scales.add(axis, values);
    write_checksum(hdf5::open_dataset(file, axis.name.data()).get(), values, std::ssize(values));
  };
  add_scale(validation_step_axis, at);
  add_scale(validation_timestep_axis, form_.validation);
  const Shape of_losses{std::ssize(at), std::ssize(form_.validation)};
  const hdf5::Dataset dataset = write_array(file, validation_loss_name, losses, of_losses);
  hdf5::describe(dataset.get(), "mean loss of the clips that validate", "1");
  hdf5::write_attribute(dataset.get(), clips_name, form_.clips);
  scales.attach(dataset.get(), {validation_step_axis, validation_timestep_axis}, of_losses);
}

void Metrics::add(const StepMetrics& row, std::span<const SampleMetrics> samples) {
  expect(std::ssize(samples) == form_.batch, "{} samples of a step of {}", samples.size(),
         form_.batch);
  rows_.push_back(row);
  samples_.insert(samples_.end(), samples.begin(), samples.end());
  written_ = false;
  if (Clock::now() >= next_) write();
}

bool Metrics::has_validation(std::int64_t step) const {
  return std::ranges::find(validations_, step, &ValidationMetrics::step) != validations_.end();
}

std::int64_t Metrics::best_step() const {
  std::int64_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const ValidationMetrics& validation : validations_) {
    const double sum = std::accumulate(validation.loss.begin(), validation.loss.end(), 0.0);
    if (validation.step == 0 || !(sum < least)) continue;
    least = sum;
    best = validation.step;
  }
  return best;
}

void Metrics::add_validation(std::vector<double> loss) {
  expect(loss.size() == form_.validation.size() && !loss.empty(), "a validation of {} timesteps",
         loss.size());
  validations_.push_back({steps(), std::move(loss)});
  written_ = false;
}

void Metrics::write() {
  if (written_ || rows_.empty()) return;
  const auto begin = Clock::now();
  hdf5::write_file(metrics_path(folder_), [&](hid_t file) { write_rows(file); });
  written_ = true;
  constexpr auto min_interval = std::chrono::seconds(5);
  next_ = begin + std::max<Clock::duration>(min_interval, 50 * (Clock::now() - begin));
}

}  // namespace reelmesh
