#include "store/restart.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "base/number.hpp"
#include "base/units.hpp"
#include "comm/together.hpp"
#include "layout/relayout.hpp"
#include "store/job_files.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t max_history = 8;  // samplers keep at most three arrays

const char* array_meaning(const std::string& name) {
  const auto found = std::ranges::find(restart_arrays, name, &RestartArrayKind::name);
  if (found != restart_arrays.end()) return found->meaning;
  expect(name.starts_with("history"), "an array {} is not described in restart_arrays", name);
  return "what the sampler keeps of earlier steps";
}

constexpr const char* cache_sum_name = "cache_sum";
std::string cache_sum_text(const RestartRecord& record) {
  return fmt::format("{}", record.cache_sum);
}

// A hash of all that is read back. arrays: the checksum of the values of each, by its name.
std::string checksum_of_all(const RestartRecord& record,
                            const std::map<std::string, std::string>& arrays) {
  std::vector<std::string> texts = hdf5::compared_texts(record.clip);
  texts.insert(texts.end(), {record.inputs, record.generator,
                             fmt::format("{} {}", record.step, record.history)});
  if (arrays.contains(latents_before_name)) texts.push_back(cache_sum_text(record));
  for (const auto& [name, checksum] : arrays) texts.insert(texts.end(), {name, checksum});
  return texts_checksum({texts.begin(), texts.end()});
}

bool has_version(hid_t file) {
  return hdf5::read_unsigned(file, "restart_version") ==
         static_cast<std::uint64_t>(restart_version);
}

}  // namespace

std::string history_name(std::int64_t i) { return fmt::format("history{}", i); }

std::filesystem::path restart_path(const std::filesystem::path& folder, int clip) {
  return folder / "restart" / fmt::format("{:06}.h5", clip);
}

void write_restart(const comm::Group& group, const std::filesystem::path& folder,
                   const RestartRecord& record, const std::vector<RestartArray>& arrays) {
  std::deque<Sharded> moved;  // a chunk, one index of the first axis, is written by one rank
  std::vector<Piece> pieces;
  std::map<std::string, std::string> checksums;  // on rank 0
  std::int64_t bytes = std::int64_t{1} << 16;
  for (const RestartArray& array : arrays) {
    const Shape& shape = array.values.layout.global();
    moved.push_back(relayout(array.values, Layout::cut(shape, 0, group.size())));
    pieces.push_back({array.name, H5T_NATIVE_FLOAT, moved.back().box(), moved.back().local.raw()});
    checksums[array.name] = piece_checksum(group, pieces.back());
    bytes += checked_product(numel(shape), 4, array.name) + 1024 * shape[0];
  }
  const auto structure = [&](hid_t file) {
    hdf5::write_title(
        file, fmt::format("clip {} of reelmesh after {} steps", record.clip.index, record.step));
    hdf5::write_attribute(file, "restart_version", restart_version);
    hdf5::write_record(file, record.clip);
    hdf5::write_attribute(file, "inputs", record.inputs);
    hdf5::write_attribute(file, "step", record.step);
    hdf5::write_attribute(file, "generator", record.generator);
    hdf5::write_attribute(file, checksum_name, checksum_of_all(record, checksums));
    hdf5::write_attribute(file, "history", record.history);
    if (checksums.contains(latents_before_name)) {
      hdf5::write_attribute(file, cache_sum_name, cache_sum_text(record));
    }
    for (const RestartArray& array : arrays) {
      const Shape& shape = array.values.layout.global();
      Shape chunk = shape;
      chunk[0] = 1;
      const hdf5::Dataset dataset = hdf5::create_dataset(file, array.name.c_str(), H5T_NATIVE_FLOAT,
                                                         shape, chunk, hdf5::Compression::none);
      hdf5::describe(dataset.get(), array_meaning(array.name), "1");
      hdf5::write_attribute(dataset.get(), checksum_name, checksums.at(array.name));
    }
  };
  const std::filesystem::path path = restart_path(folder, record.clip.index);
  comm::run_collectively(group, [&] {
    std::error_code error;
    if (group.rank() == 0) std::filesystem::create_directories(path.parent_path(), error);
    require(!error, Status::cannot_create, "{}: cannot create it: {}", path.parent_path().string(),
            error.message());
  });
  write_pieces(group, path, structure, bytes, pieces);
}

std::optional<RestartFile> RestartFile::open(const std::filesystem::path& folder,
                                             const ClipRecord& clip, const std::string& inputs,
                                             const RestartShapes& shapes) {
  RestartFile restart;
  restart.file_ = hdf5::open_if_valid(restart_path(folder, clip.index));
  if (!restart.file_) return std::nullopt;
  const hid_t file = restart.file_.get();
  if (!has_version(file)) return std::nullopt;
  constexpr std::size_t max_generator = std::size_t{1} << 16;
  const auto step = hdf5::read_unsigned(file, "step");
  const auto history = hdf5::read_unsigned(file, "history");
  const auto generator = hdf5::read_text(file, "generator", max_generator);
  if (!step || !history || !generator || *history > max_history || *step == 0 ||
      !hdf5::has_record(file, clip) || !hdf5::has_text(file, "inputs", inputs)) {
    return std::nullopt;
  }
  restart.record_ = {clip, inputs, static_cast<std::int64_t>(*step), *generator,
                     static_cast<std::int64_t>(*history)};
  if (!shapes.latents_before.empty()) {
    constexpr std::size_t max_number = 32;
    const auto text = hdf5::read_text(file, cache_sum_name, max_number);
    const auto sum = read_number<double>(text.value_or(""));
    if (!sum) return std::nullopt;
    restart.record_.cache_sum = *sum;
  }
  std::map<std::string, Shape> arrays;
  for (const RestartArrayKind& kind : restart_arrays) {
    if (const Shape& shape = shapes.*kind.shape; !shape.empty()) arrays.emplace(kind.name, shape);
  }
  for (std::int64_t i = 0; i < restart.record_.history; ++i) {
    arrays.emplace(history_name(i), shapes.latents);
  }
  std::map<std::string, std::string> checksums;
  for (const auto& [name, shape] : arrays) {
    if (!hdf5::holds(file, name.c_str(), H5T_NATIVE_FLOAT, shape)) return std::nullopt;
    const hdf5::Dataset dataset = hdf5::open_dataset(file, name.c_str());
    checksums[name] = hdf5::read_text(dataset.get(), checksum_name, max_checksum).value_or("");
  }
  if (!hdf5::has_text(file, checksum_name, checksum_of_all(restart.record_, checksums))) {
    return std::nullopt;
  }
  return restart;
}

bool RestartFile::has_other_version(const std::filesystem::path& folder, int clip) {
  const hdf5::File file = hdf5::open_if_valid(restart_path(folder, clip));
  return file && hdf5::read_unsigned(file.get(), "step") && !has_version(file.get());
}

Tensor RestartFile::read(const std::string& name, const Box& box) const {
  Tensor values = Tensor::empty(box.extent, DType::float32);
  if (box.empty()) return values;
  const hdf5::Dataset dataset = hdf5::open_dataset(file_.get(), name.c_str());
  const std::string bytes = hdf5::read_box(dataset.get(), H5T_NATIVE_FLOAT, box);
  std::memcpy(values.raw(), bytes.data(), bytes.size());
  return values;
}

void remove_restart(const std::filesystem::path& folder, int clip) {
  std::error_code ignored;
  std::filesystem::remove(restart_path(folder, clip), ignored);
}

void remove_restarts(const std::filesystem::path& folder) {
  try {
    remove_job_files(folder, {JobFile::restart});
  } catch (const std::filesystem::filesystem_error&) {
    // They are only in the way: a later job compares what they say with what it makes.
  }
}

}  // namespace reelmesh
