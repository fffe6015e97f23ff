#include "store/metrics.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/log.hpp"
#include "store/axes.hpp"
#include "store/check.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

struct Column {
  const char* name;
  const char* meaning;
  const char* units;
  double StepMetrics::*value;
};

constexpr std::array<Column, 4> columns{{
    {"loss", "mean loss of the clips of the step", "1", &StepMetrics::loss},
    {"gradient_norm", "norm of the gradient of all parameters, before clipping", "1",
     &StepMetrics::gradient_norm},
    {"learning_rate", "learning rate", "1", &StepMetrics::learning_rate},
    {"seconds", "wall time of the step", "s", &StepMetrics::seconds},
}};
static_assert(columns.size() * sizeof(double) == sizeof(StepMetrics),
              "a value of a step is not described in columns");

constexpr Axis step_axis{"step", "step of the training, from 0"};

// As many rows as all columns of the file have; none if it is missing, damaged or of a newer
// program.
std::vector<StepMetrics> read_rows(const std::filesystem::path& path) {
  const hdf5::File file = hdf5::open_if_valid(path);
  if (!file || !hdf5::is_known_version(file.get())) return {};
  const auto shape = hdf5::dataset_shape(file.get(), columns[0].name, H5T_NATIVE_DOUBLE);
  if (!shape || shape->size() != 1) return {};
  for (const Column& column : columns) {
    if (!hdf5::holds(file.get(), column.name, H5T_NATIVE_DOUBLE, *shape)) return {};
  }
  std::vector<StepMetrics> rows(static_cast<std::size_t>(shape->front()));
  for (const Column& column : columns) {
    const hdf5::Dataset dataset = hdf5::open_dataset(file.get(), column.name);
    const std::string bytes = hdf5::read_box(dataset.get(), H5T_NATIVE_DOUBLE, whole_box(*shape));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(&(rows[i].*column.value), bytes.data() + i * sizeof(double), sizeof(double));
    }
  }
  return rows;
}

void write_rows(hid_t file, const std::vector<StepMetrics>& rows) {
  hdf5::write_title(file, fmt::format("{} steps of a training by reelmesh", rows.size()));
  Scales scales(file);
  const Shape shape{std::ssize(rows)};
  for (const Column& column : columns) {
    std::vector<double> values(rows.size());
    std::ranges::transform(rows, values.begin(),
                           [&](const StepMetrics& row) { return row.*column.value; });
    const hdf5::Dataset dataset =
        hdf5::create_dataset(file, column.name, H5T_NATIVE_DOUBLE, shape, shape);
    hdf5::write_all(dataset.get(), H5T_NATIVE_DOUBLE, values.data());
    hdf5::describe(dataset.get(), column.meaning, column.units);
    const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                                 values.size() * sizeof(double));
    hdf5::write_attribute(dataset.get(), checksum_name,
                          combined(hashes_of_indices(bytes, shape[0])));
    scales.attach(dataset.get(), {step_axis}, shape);
  }
}

}  // namespace

std::filesystem::path metrics_path(const std::filesystem::path& folder) {
  return folder / "metrics.h5";
}

Metrics::Metrics(std::filesystem::path folder, std::int64_t done)
    : folder_(std::move(folder)), next_(Clock::now()) {
  const auto count = static_cast<std::size_t>(done);
  if (count > 0) rows_ = read_rows(metrics_path(folder_));
  if (rows_.size() < count) {
    log::warning("{}: found {} steps, expected {}; those that are missing become NaN",
                 metrics_path(folder_).string(), rows_.size(), count);
  }
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  rows_.resize(count, {nan, nan, nan, nan});
}

void Metrics::add(const StepMetrics& row) {
  rows_.push_back(row);
  if (Clock::now() >= next_) write();
}

void Metrics::write() {
  if (written_ == rows_.size()) return;
  const auto begin = Clock::now();
  hdf5::write_file(metrics_path(folder_), [&](hid_t file) { write_rows(file, rows_); });
  written_ = rows_.size();
  constexpr auto min_interval = std::chrono::seconds(5);
  next_ = begin + std::max<Clock::duration>(min_interval, 50 * (Clock::now() - begin));
}

}  // namespace reelmesh
