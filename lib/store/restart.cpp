#include "store/restart.hpp"

#include <algorithm>

#include "base/file.hpp"
#include "base/number.hpp"
#include "comm/together.hpp"
#include "store/check.hpp"
#include "store/job_files.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t max_history = 8;  // samplers keep at most three arrays

const char* array_meaning(const std::string& name) {
  const auto found = std::ranges::find(restart_arrays, name, &ArrayKind<RestartShapes>::name);
  if (found != restart_arrays.end()) return found->meaning;
  expect(name.starts_with("history"), "an array {} is not described in restart_arrays", name);
  return "what the sampler keeps of earlier steps";
}

constexpr const char* cache_sum_name = "cache_sum";
std::string cache_sum_text(const RestartRecord& record) {
  return fmt::format("{}", record.cache_sum);
}

// All that is read back but the arrays.
std::vector<std::string> texts_of(const RestartRecord& record, bool has_cache_sum) {
  std::vector<std::string> texts = hdf5::compared_texts(record.clip);
  texts.insert(texts.end(), {record.inputs, record.generator,
                             fmt::format("{} {}", record.step, record.history)});
  if (has_cache_sum) texts.push_back(cache_sum_text(record));
  return texts;
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
  std::vector<StoredArray> stored;
  for (const RestartArray& array : arrays) {
    stored.push_back({array.name, array_meaning(array.name), array.values});
  }
  const bool has_cache_sum =
      std::ranges::find(arrays, latents_before_name, &RestartArray::name) != arrays.end();
  const std::filesystem::path path = restart_path(folder, record.clip.index);
  comm::run_on_first_rank(group, [&] { create_folders(path.parent_path()); });
  write_arrays(group, path, hdf5::Storage::chunks, stored, [&](hid_t file, Checksums checksums) {
    hdf5::write_title(
        file, fmt::format("clip {} of reelmesh after {} steps", record.clip.index, record.step));
    hdf5::write_attribute(file, "restart_version", restart_version);
    hdf5::write_record(file, record.clip);
    hdf5::write_attribute(file, "inputs", record.inputs);
    hdf5::write_attribute(file, "step", record.step);
    hdf5::write_attribute(file, "generator", record.generator);
    std::ranges::sort(checksums);
    hdf5::write_attribute(file, checksum_name,
                          checksum_of_all(texts_of(record, has_cache_sum), checksums));
    hdf5::write_attribute(file, "history", record.history);
    if (has_cache_sum) hdf5::write_attribute(file, cache_sum_name, cache_sum_text(record));
  });
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
  std::vector<ExpectedArray> arrays = expected_arrays(restart_arrays, shapes);
  for (std::int64_t i = 0; i < restart.record_.history; ++i) {
    arrays.push_back({history_name(i), shapes.latents});
  }
  std::ranges::sort(arrays, {}, &ExpectedArray::name);
  const std::vector<std::string> texts = texts_of(restart.record_, !shapes.latents_before.empty());
  if (!holds_arrays(file, arrays) || !has_checksum_of_all(file, texts, arrays)) return std::nullopt;
  return restart;
}

std::int64_t RestartFile::step_of(const std::filesystem::path& folder, int clip) {
  const hdf5::File file = hdf5::open_if_valid(restart_path(folder, clip));
  const auto step = file ? hdf5::read_unsigned(file.get(), "step") : std::nullopt;
  constexpr std::uint64_t max_step = 1000;
  return static_cast<std::int64_t>(std::min(step.value_or(0), max_step));
}

bool RestartFile::has_other_version(const std::filesystem::path& folder, int clip) {
  const hdf5::File file = hdf5::open_if_valid(restart_path(folder, clip));
  return file && hdf5::read_unsigned(file.get(), "step") && !has_version(file.get());
}

Tensor RestartFile::read(const std::string& name, const Box& box) const {
  return hdf5::read_values(file_.get(), name.c_str(), DType::float32, box);
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
