#include "store/sample_cache.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <set>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/new_file.hpp"
#include "base/number.hpp"
#include "base/system.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "base/utf8.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "layout/relayout.hpp"
#include "store/axes.hpp"
#include "store/check.hpp"
#include "store/job_files.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

struct SampleArray {
  const char* name;     ///< of the dataset
  const char* meaning;  ///< its attribute long_name
  std::vector<Axis> axes;
  std::optional<Sharded> SampleArrays::*values;
  Shape SampleShapes::*shape;
};

const std::vector<Axis> latent_axes{axes::latent_frame, axes::latent_channel, axes::latent_height,
                                    axes::latent_width};
const std::array<SampleArray, 4> sample_arrays{{
    {"latent_mean", "mean of the latents, not scaled", latent_axes, &SampleArrays::latent_mean,
     &SampleShapes::latent_mean},
    {"latent_std", "standard deviation of the latents, not scaled", latent_axes,
     &SampleArrays::latent_std, &SampleShapes::latent_std},
    {"prompt_embeds",
     "text embedding of the prompt",
     {axes::token, axes::embedding},
     &SampleArrays::prompt_embeds,
     &SampleShapes::prompt_embeds},
    {"first_frame",
     "pixels of the first frame, from 0 to 255",
     {axes::height, axes::width, axes::channel},
     &SampleArrays::first_frame,
     &SampleShapes::first_frame},
}};
static_assert(sample_arrays.size() * sizeof(Shape) == sizeof(SampleShapes),
              "an array of a sample is not described in sample_arrays");

/// What names of temporary files of this host's processes begin with: "HOST-NAMESPACE-", as
/// containers may have the host's name and processes of the same numbers.
std::string processes_of_this_host() {
  struct stat found = {};
  const bool is_known = ::stat("/proc/self/ns/pid", &found) == 0;
  return fmt::format("{}-{}-", host_name(), is_known ? found.st_ino : 0);
}

/// Whether the process runs, or may run, as there is no /proc that would tell. A zombie, whose
/// parent has not waited for it yet, does not run: its exe leads nowhere.
bool may_run(pid_t process) {
  struct stat ignored = {};
  if (::stat("/proc/self/exe", &ignored) != 0) return true;
  return ::stat(fmt::format("/proc/{}/exe", process).c_str(), &ignored) == 0 || errno != ENOENT;
}

/// The array and the checksum of its values.
using Checksums = std::vector<std::pair<std::string, std::string>>;

/// A hash of what is compared and of the checksums of all arrays: HDF5 stores attributes without.
std::string checksum_of_all(const SampleRecord& record, const Checksums& checksums) {
  std::vector<std::string_view> texts;
  for (const SampleText& text : compared_sample_texts) texts.emplace_back(record.*text.text);
  for (const auto& [name, checksum] : checksums) texts.insert(texts.end(), {name, checksum});
  return texts_checksum(texts);
}

/// What the file says that it was made from; empty if that is damaged.
std::optional<SampleRecord> read_record(hid_t file, const SampleShapes& shapes) {
  constexpr std::size_t max_text = std::size_t{1} << 20;
  SampleRecord record;
  for (const SampleText& compared : compared_sample_texts) {
    auto text = hdf5::read_text(file, compared.name, max_text);
    if (!text) return std::nullopt;
    record.*compared.text = std::move(*text);
  }
  Checksums checksums;
  for (const SampleArray& array : sample_arrays) {
    if ((shapes.*array.shape).empty()) continue;
    if (!hdf5::dataset_shape(file, array.name, H5T_NATIVE_FLOAT)) return std::nullopt;
    const hdf5::Dataset dataset = hdf5::open_dataset(file, array.name);
    checksums.emplace_back(
        array.name, hdf5::read_text(dataset.get(), checksum_name, max_checksum).value_or(""));
  }
  if (!hdf5::has_text(file, checksum_name, checksum_of_all(record, checksums))) {
    return std::nullopt;
  }
  return record;
}

/// The file under its name, unless a whole one is there: another job has made it, and uses it.
void publish(const std::filesystem::path& made, const CachedSample& sample) {
  std::error_code error;
  std::string problem;
  const std::optional<SampleFile> other = SampleFile::open(sample, problem);
  if (other && other->is_whole()) {
    std::filesystem::remove(made, error);
    return;
  }
  std::filesystem::rename(made, sample.path, error);
  require(!error, Status::io, "{}: cannot rename {} to it: {}", sample.path.string(),
          made.filename().string(), error.message());
  flush_to_disk(sample.path.parent_path());
}

}  // namespace

std::filesystem::path cached_path(const std::filesystem::path& cache, const SampleRecord& record) {
  Hash hash;
  for (const SampleText& text : compared_sample_texts) hash.add(record.*text.text);
  return cache / (hash.hex() + ".h5");
}

void write_sample(const comm::Group& group, const CachedSample& sample,
                  const SampleArrays& values) {
  struct Stored {
    const SampleArray* array;
    Shape shape;
  };
  std::vector<Stored> stored;
  std::deque<Sharded> moved;  // a chunk, one index of the first axis, is written by one rank
  std::vector<Piece> pieces;
  Checksums checksums;  // on rank 0
  std::int64_t bytes = std::int64_t{1} << 20;
  for (const SampleArray& array : sample_arrays) {
    const std::optional<Sharded>& x = values.*array.values;
    const Shape& shape = sample.shapes.*array.shape;
    expect(x.has_value() == !shape.empty() && (!x || x->layout.global() == shape),
           "{} of a sample is not given in the shape {}", array.name, shape);
    if (!x) continue;
    expect(shape.size() == array.axes.size() && numel(shape) > 0 &&
               (x->local.empty() || x->local.dtype() == DType::float32),
           "{} of a sample has the shape {} or another type", array.name, shape);
    moved.push_back(relayout(*x, Layout::cut(shape, 0, group.size())));
    pieces.push_back({array.name, H5T_NATIVE_FLOAT, moved.back().box(), moved.back().local.raw()});
    checksums.emplace_back(array.name, piece_checksum(group, pieces.back()));
    stored.push_back({&array, shape});
    bytes += checked_product(numel(shape), 4, array.name) + 4096 * shape[0];
  }
  const auto structure = [&](hid_t file) {
    hdf5::write_title(file, "encoded training sample of reelmesh");
    hdf5::write_attribute(file, "Conventions", "CF-1.8");
    hdf5::write_attribute(file, "file", as_utf8(sample.record.file));
    for (const SampleText& text : compared_sample_texts) {
      hdf5::write_attribute(file, text.name, sample.record.*text.text);
    }
    hdf5::write_attribute(file, checksum_name, checksum_of_all(sample.record, checksums));
    Scales scales(file);
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const auto& [array, shape] = stored[i];
      Shape chunk = shape;
      chunk[0] = 1;
      const hdf5::Dataset dataset = hdf5::create_dataset(file, array->name, H5T_NATIVE_FLOAT, shape,
                                                         chunk, hdf5::Compression::none);
      hdf5::describe(dataset.get(), array->meaning, "1");
      hdf5::write_attribute(dataset.get(), checksum_name, checksums[i].second);
      scales.attach(dataset.get(), array->axes, shape);
    }
  };
  const std::string process = fmt::format("{}{}", processes_of_this_host(), getpid());
  const std::filesystem::path made =
      sample.path.parent_path() / fmt::format("{}.{}.h5", sample.path.stem().string(),
                                              comm::broadcast_texts(group, {process}, 0).front());
  write_pieces(group, made, structure, bytes, pieces);
  comm::run_on_first_rank(group, [&] { publish(made, sample); });
}

void prepare_cache(const std::filesystem::path& cache) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(cache, error);
  require(!error, Status::cannot_create, "{}: cannot create it: {}", cache.string(),
          error.message());
  const std::string here = processes_of_this_host();
  const auto oldest = fs::file_time_type::clock::now() - std::chrono::hours(24);
  std::error_code ignored;
  for (fs::directory_iterator entry(cache, ignored), end; entry != end; entry.increment(ignored)) {
    const std::string found = entry->path().filename().string();
    const std::string_view complete = name_when_complete(found);
    const std::string_view name = complete.empty() ? std::string_view(found) : complete;
    // HASH.HOST-NAMESPACE-PROCESS.h5
    if (job_file_kind("cache", found) != JobFile::cache || name.size() <= Hash::digits + 4)
      continue;
    const std::string_view process = name.substr(Hash::digits + 1, name.size() - Hash::digits - 4);
    const auto number =
        process.starts_with(here) ? read_number<pid_t>(process.substr(here.size())) : std::nullopt;
    const bool has_ended = number > 0 && !may_run(*number);
    if (has_ended || entry->last_write_time(ignored) < oldest) fs::remove(entry->path(), ignored);
  }
  const NewFile usable(cache / fmt::format("{}.{}{}.h5", Hash().hex(), here, ::getpid()));
}

std::optional<SampleFile> SampleFile::open(const CachedSample& expected, std::string& problem) {
  problem.clear();
  std::error_code ignored;
  if (!std::filesystem::exists(expected.path, ignored)) return std::nullopt;
  SampleFile sample;
  sample.sample_ = expected;
  sample.file_ = hdf5::open_if_valid(expected.path);
  problem = "is damaged, or not a file of encoded samples";
  if (!sample.file_ || !hdf5::is_known_version(sample.file_.get())) return std::nullopt;
  const auto record = read_record(sample.file_.get(), expected.shapes);
  if (!record) return std::nullopt;
  for (const SampleArray& array : sample_arrays) {
    const Shape& shape = expected.shapes.*array.shape;
    if (!shape.empty() &&
        hdf5::dataset_shape(sample.file_.get(), array.name, H5T_NATIVE_FLOAT) != shape) {
      problem = fmt::format("has a {} of another shape than {}", array.name, shape);
      return std::nullopt;
    }
  }
  for (const SampleText& text : compared_sample_texts) {
    if ((*record).*text.text == expected.record.*text.text) continue;
    problem = fmt::format("has another {} than its name says", text.name);
    return std::nullopt;
  }
  problem.clear();
  return sample;
}

bool SampleFile::is_whole() const {
  return std::ranges::all_of(sample_arrays, [&](const SampleArray& array) {
    const Shape& shape = sample_.shapes.*array.shape;
    return shape.empty() || hdf5::holds(file_.get(), array.name, H5T_NATIVE_FLOAT, shape);
  });
}

Tensor SampleFile::read(Shape SampleShapes::*member, const Box& box) const {
  const auto array = std::ranges::find(sample_arrays, member, &SampleArray::shape);
  const Shape& shape = sample_.shapes.*member;
  expect(!shape.empty() && whole_box(shape).contains(box), "{} of {} {}", to_string(box),
         array->name, shape);
  Tensor values = Tensor::empty(box.extent, DType::float32);
  if (box.empty()) return values;
  require(hdf5::has_chunks(file_.get(), array->name, H5T_NATIVE_FLOAT, shape, box.offset[0],
                           box.extent[0]),
          Status::data, "{}: {} {} cannot be read: the file is damaged", sample_.path.string(),
          array->name, to_string(box));
  const hdf5::Dataset dataset = hdf5::open_dataset(file_.get(), array->name);
  try {
    const std::string bytes = hdf5::read_box(dataset.get(), H5T_NATIVE_FLOAT, box);
    std::memcpy(values.raw(), bytes.data(), bytes.size());
  } catch (const Error& error) {
    fail(Status::data, "{}", error.what());
  }
  return values;
}

std::vector<std::size_t> samples_to_make(const comm::Group& group,
                                         const std::vector<CachedSample>& samples) {
  std::vector<std::uint64_t> mine;
  std::vector<std::string> mine_problems;
  std::vector<std::size_t> distinct;  // samples may share a file
  std::set<std::filesystem::path> seen;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (seen.insert(samples[i].path).second) distinct.push_back(i);
  }
  comm::run_collectively(group, [&] {
    const auto ranks = static_cast<std::size_t>(group.size());
    for (auto at = static_cast<std::size_t>(group.rank()); at < distinct.size(); at += ranks) {
      const std::size_t i = distinct[at];
      std::string problem;
      const std::optional<SampleFile> file = SampleFile::open(samples[i], problem);
      if (file && file->is_whole()) continue;
      mine.push_back(i);
      mine_problems.push_back(file ? "is damaged" : problem);
    }
  });
  const auto indices = comm::all_gather_values(group, mine);
  const auto problems = comm::all_gather_texts(group, mine_problems);
  std::vector<std::pair<std::size_t, std::string>> found;
  for (std::size_t r = 0; r < indices.size(); ++r) {
    for (std::size_t i = 0; i < indices[r].size(); ++i) {
      found.emplace_back(indices[r][i], problems[r].at(i));
    }
  }
  std::ranges::sort(found);
  std::vector<std::size_t> to_make;
  for (const auto& [i, problem] : found) {
    to_make.push_back(i);
    if (!problem.empty()) {
      log::warning("{} {}; it is made again", samples[i].path.string(), problem);
    }
  }
  return to_make;
}

}  // namespace reelmesh
