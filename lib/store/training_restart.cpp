#include "store/training_restart.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/file.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "store/arrays.hpp"
#include "store/check.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

constexpr const char *version_name = "restart_version", *count_name = "arrays";
constexpr std::size_t max_fingerprint = std::size_t{1} << 20;

// As they are in the file.
std::vector<ExpectedArray> expected(const std::vector<TrainingArray>& arrays) {
  std::vector<ExpectedArray> result;
  for (const TrainingArray& array : arrays) {
    result.push_back({array.name, array.values.layout.global()});
  }
  return result;
}

// All that is read back but the arrays.
std::vector<std::string> texts_of_training(std::int64_t step, const std::string& fingerprint) {
  return {fmt::format("{}", step), fingerprint};
}

// The items of a fingerprint that another one does not have.
std::string items_not_in(const std::string& fingerprint, const std::string& other) {
  const auto items = [](std::string_view text) {
    std::vector<std::string_view> found;
    constexpr std::string_view separator = ", ";
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(separator, begin), text.size());
      found.push_back(text.substr(begin, end - begin));
      begin = end + separator.size();
    }
    return found;
  };
  const std::vector<std::string_view> others = items(other);
  std::vector<std::string_view> left;
  for (const std::string_view item : items(fingerprint)) {
    if (std::ranges::find(others, item) == others.end()) left.push_back(item);
  }
  return left.empty() ? "none" : fmt::format("{}", fmt::join(left, ", "));
}

void require_same(const std::string& path, const std::string& found,
                  const std::string& fingerprint) {
  require(found == fingerprint, Status::data, "{}: is of another training: found {}, expected {}",
          path, items_not_in(found, fingerprint), items_not_in(fingerprint, found));
}

// → the saved step.
std::int64_t require_step(std::uint64_t found, const std::string& path, std::int64_t steps) {
  require(found <= static_cast<std::uint64_t>(steps), Status::data,
          "{}: found step {}, expected 0 to train.steps = {}", path, found, steps);
  return static_cast<std::int64_t>(found);
}

// Checks all but the values. → the number of steps.
std::int64_t check_structure(hid_t file, const std::string& path, const std::string& fingerprint,
                             std::int64_t max_steps, const std::vector<ExpectedArray>& arrays) {
  const auto version = hdf5::read_unsigned(file, version_name);
  require(version.has_value() && hdf5::is_known_version(file), Status::data,
          "{}: found no state of a training, expected the restart file of one", path);
  require(*version == static_cast<std::uint64_t>(training_restart_version), Status::data,
          "{}: found restart_version {}, expected {}", path, *version, training_restart_version);
  const auto found = hdf5::read_text(file, "fingerprint", max_fingerprint);
  const auto step = hdf5::read_unsigned(file, "step");
  const auto count = hdf5::read_unsigned(file, count_name);
  require(found && step && count, Status::data,
          "{}: is damaged: no step, fingerprint or number of arrays can be read", path);
  require_same(path, *found, fingerprint);
  for (const auto& [name, expected, dtype] : arrays) {
    const auto shape = hdf5::dataset_shape(file, name.c_str(), hdf5::native_type(dtype));
    require(shape.has_value(), Status::data, "{}: found no float32 array {}, expected one of {}",
            path, name, to_string(expected));
    require(*shape == expected, Status::data, "{}: array {} has shape {}, expected {}", path, name,
            to_string(*shape), to_string(expected));
  }
  require(*count == arrays.size(), Status::data, "{}: found {} arrays, expected {}", path, *count,
          arrays.size());
  const std::int64_t steps = require_step(*step, path, max_steps);
  require(has_checksum_of_all(file, texts_of_training(steps, fingerprint), arrays), Status::data,
          "{}: is damaged: found another checksum of its attributes than was written", path);
  return steps;
}

}  // namespace

std::filesystem::path training_restart_path(const std::filesystem::path& folder) {
  return folder / "restart" / "training.h5";
}

void write_training_restart(const comm::Group& group, const std::filesystem::path& folder,
                            std::int64_t step, const std::string& fingerprint,
                            const std::vector<TrainingArray>& arrays) {
  std::vector<StoredArray> stored;
  for (const TrainingArray& array : arrays) {
    stored.push_back(
        {array.name, "parameters of the training, or moments of their gradients", array.values});
  }
  const std::filesystem::path path = training_restart_path(folder);
  comm::run_on_first_rank(group, [&] { create_folders(path.parent_path()); });
  write_arrays(
      group, path, hdf5::Storage::whole, stored, [&](hid_t file, const Checksums& checksums) {
        hdf5::write_title(file, fmt::format("training by reelmesh after {} steps", step));
        hdf5::write_attribute(file, version_name, training_restart_version);
        hdf5::write_attribute(file, "step", step);
        hdf5::write_attribute(file, "fingerprint", fingerprint);
        hdf5::write_attribute(file, count_name, std::int64_t{std::ssize(arrays)});
        hdf5::write_attribute(file, checksum_name,
                              checksum_of_all(texts_of_training(step, fingerprint), checksums));
      });
}

std::optional<std::string> saved_fingerprint(const std::filesystem::path& folder) {
  const hdf5::File file = hdf5::open_if_valid(training_restart_path(folder));
  return file ? hdf5::read_text(file.get(), "fingerprint", max_fingerprint) : std::nullopt;
}

void require_training_of(const std::filesystem::path& folder, const std::string& fingerprint,
                         std::int64_t steps) {
  const std::filesystem::path path = training_restart_path(folder);
  const hdf5::File file = hdf5::open_if_valid(path);
  if (!file) return;
  const auto found = hdf5::read_text(file.get(), "fingerprint", max_fingerprint);
  if (found) require_same(path.string(), *found, fingerprint);
  if (const auto step = hdf5::read_unsigned(file.get(), "step")) {
    (void)require_step(*step, path.string(), steps);
  }
}

std::optional<std::int64_t> read_training_restart(const comm::Group& group,
                                                  const std::filesystem::path& folder,
                                                  const std::string& fingerprint,
                                                  std::int64_t steps,
                                                  const std::vector<TrainingArray>& arrays) {
  for (const auto& [name, values] : arrays) require_dense(group, name, values);
  const std::vector<ExpectedArray> in_file = expected(arrays);
  const std::filesystem::path path = training_restart_path(folder);
  std::int64_t exists = 0;
  if (group.rank() == 0) exists = std::filesystem::exists(path) ? 1 : 0;
  if (comm::broadcast_value(group, exists, 0) == 0) return std::nullopt;
  hdf5::File file;
  std::int64_t step = 0;
  comm::run_collectively(group, [&] {
    file = hdf5::open_if_valid(path);
    require(static_cast<bool>(file), Status::data, "{}: is damaged: HDF5 cannot open it",
            path.string());
    if (group.rank() == 0) {
      step = check_structure(file.get(), path.string(), fingerprint, steps, in_file);
    }
  });
  comm::run_collectively(group, [&] {  // each rank checks some arrays
    const auto ranks = static_cast<std::size_t>(group.size());
    for (std::size_t i = static_cast<std::size_t>(group.rank()); i < in_file.size(); i += ranks) {
      const auto& [name, shape, dtype] = in_file[i];
      require(hdf5::holds_whole(file.get(), name.c_str(), hdf5::native_type(dtype), shape),
              Status::data, "{}: is damaged: found other values of {} than were written",
              path.string(), name);
    }
  });
  comm::run_collectively(group, [&] {
    for (const auto& [name, values] : arrays) {
      const Tensor found =
          hdf5::read_values(file.get(), name.c_str(), DType::float32, values.box());
      Tensor local = values.local;
      if (!found.empty()) std::memcpy(local.raw(), found.raw(), std::size_t(found.bytes()));
    }
  });
  return comm::broadcast_value(group, step, 0);
}

}  // namespace reelmesh
