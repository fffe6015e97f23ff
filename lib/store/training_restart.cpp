#include "store/training_restart.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string_view>

#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "layout/relayout.hpp"
#include "store/check.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

constexpr const char *version_name = "restart_version", *count_name = "arrays";
constexpr std::size_t max_fingerprint = std::size_t{1} << 20;

const Shape& shape_of(const TrainingArray& array) { return array.values.layout.global(); }

void check(const comm::Group& group, const TrainingArray& array) {
  const Tensor& local = array.values.local;
  const Box& box = array.values.box();
  expect(array.name.find('/') == std::string::npos && numel(shape_of(array)) > 0 &&
             !shape_of(array).empty() && array.values.layout.ranks() == group.size() &&
             (box.empty() || (local.dtype() == DType::float32 && local.shape() == box.extent)),
         "array {} of a training cannot be stored: {} of {}", array.name, to_string(box),
         to_string(shape_of(array)));
}

// Of all that is read back but the values. arrays: their checksums, in the order of the list.
std::string checksum_of_all(std::int64_t step, const std::string& fingerprint,
                            const std::vector<TrainingArray>& arrays,
                            const std::vector<std::string>& checksums) {
  const std::string number = fmt::format("{}", step);
  std::vector<std::string_view> texts{number, fingerprint};
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    texts.insert(texts.end(), {arrays[i].name, checksums[i]});
  }
  return texts_checksum(texts);
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
                             std::int64_t max_steps, const std::vector<TrainingArray>& arrays) {
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
  std::vector<std::string> checksums;
  for (const TrainingArray& array : arrays) {
    const auto shape = hdf5::dataset_shape(file, array.name.c_str(), H5T_NATIVE_FLOAT);
    require(shape.has_value(), Status::data, "{}: found no float32 array {}, expected one of {}",
            path, array.name, to_string(shape_of(array)));
    require(*shape == shape_of(array), Status::data, "{}: array {} has shape {}, expected {}", path,
            array.name, to_string(*shape), to_string(shape_of(array)));
    const hdf5::Dataset dataset = hdf5::open_dataset(file, array.name.c_str());
    checksums.push_back(hdf5::read_text(dataset.get(), checksum_name, max_checksum).value_or(""));
  }
  require(*count == arrays.size(), Status::data, "{}: found {} arrays, expected {}", path, *count,
          arrays.size());
  const std::int64_t steps = require_step(*step, path, max_steps);
  require(
      hdf5::has_text(file, checksum_name, checksum_of_all(steps, fingerprint, arrays, checksums)),
      Status::data, "{}: is damaged: found another checksum of its attributes than was written",
      path);
  return steps;
}

}  // namespace

std::filesystem::path training_restart_path(const std::filesystem::path& folder) {
  return folder / "restart" / "training.h5";
}

void write_training_restart(const comm::Group& group, const std::filesystem::path& folder,
                            std::int64_t step, const std::string& fingerprint,
                            const std::vector<TrainingArray>& arrays) {
  std::deque<Sharded> moved;  // whole indices of the first axis, for checksums
  std::vector<Piece> pieces;
  std::vector<std::string> checksums;  // on rank 0
  for (const TrainingArray& array : arrays) {
    check(group, array);
    moved.push_back(relayout(array.values, Layout::cut(shape_of(array), 0, group.size())));
    pieces.push_back({array.name, H5T_NATIVE_FLOAT, moved.back().box(), moved.back().local.raw()});
    checksums.push_back(piece_checksum(group, pieces.back()));
  }
  const auto structure = [&](hid_t file) {
    hdf5::write_title(file, fmt::format("training by reelmesh after {} steps", step));
    hdf5::write_attribute(file, version_name, training_restart_version);
    hdf5::write_attribute(file, "step", step);
    hdf5::write_attribute(file, "fingerprint", fingerprint);
    hdf5::write_attribute(file, count_name, std::int64_t{std::ssize(arrays)});
    hdf5::write_attribute(file, checksum_name,
                          checksum_of_all(step, fingerprint, arrays, checksums));
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const hdf5::Dataset dataset =
          hdf5::create_dataset(file, arrays[i].name.c_str(), H5T_NATIVE_FLOAT, shape_of(arrays[i]));
      hdf5::describe(dataset.get(), "parameters of the training, or moments of their gradients",
                     "1");
      hdf5::write_attribute(dataset.get(), checksum_name, checksums[i]);
    }
  };
  const std::filesystem::path path = training_restart_path(folder);
  comm::run_collectively(group, [&] {
    std::error_code error;
    if (group.rank() == 0) std::filesystem::create_directories(path.parent_path(), error);
    require(!error, Status::cannot_create, "{}: cannot create it: {}", path.parent_path().string(),
            error.message());
  });
  write_pieces(group, path, structure, 0, pieces);
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
  for (const TrainingArray& array : arrays) check(group, array);
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
      step = check_structure(file.get(), path.string(), fingerprint, steps, arrays);
    }
  });
  comm::run_collectively(group, [&] {  // each rank checks some arrays
    const auto ranks = static_cast<std::size_t>(group.size());
    for (std::size_t i = static_cast<std::size_t>(group.rank()); i < arrays.size(); i += ranks) {
      require(hdf5::holds_whole(file.get(), arrays[i].name.c_str(), H5T_NATIVE_FLOAT,
                                shape_of(arrays[i])),
              Status::data, "{}: is damaged: found other values of {} than were written",
              path.string(), arrays[i].name);
    }
  });
  comm::run_collectively(group, [&] {
    for (const TrainingArray& array : arrays) {
      const Box& box = array.values.box();
      if (box.empty()) continue;
      const hdf5::Dataset dataset = hdf5::open_dataset(file.get(), array.name.c_str());
      const std::string bytes = hdf5::read_box(dataset.get(), H5T_NATIVE_FLOAT, box);
      Tensor local = array.values.local;
      std::memcpy(local.raw(), bytes.data(), bytes.size());
    }
  });
  return comm::broadcast_value(group, step, 0);
}

}  // namespace reelmesh
