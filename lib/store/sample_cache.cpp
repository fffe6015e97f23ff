#include "store/sample_cache.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/new_file.hpp"
#include "base/number.hpp"
#include "base/system.hpp"
#include "base/text.hpp"
#include "base/trace.hpp"
#include "base/utf8.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "store/arrays.hpp"
#include "store/check.hpp"
#include "store/job_files.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

const std::array<MemberArray<OfSampleArrays>, 6> sample_arrays{{
    {{"latent_mean", "mean of the latents, not scaled", &SampleShapes::latent_mean, DType::float32,
      axes::latents},
     &SampleArrays::latent_mean},
    {{"latent_std", "standard deviation of the latents, not scaled", &SampleShapes::latent_std,
      DType::float32, axes::latents},
     &SampleArrays::latent_std},
    {{"prompt_embeds", "text embedding of the prompt", &SampleShapes::prompt_embeds, DType::float32,
      axes::text},
     &SampleArrays::prompt_embeds},
    {{"first_frame",
      "pixels of the first frame, from 0 to 255",
      &SampleShapes::first_frame,
      DType::float32,
      {axes::height, axes::width, axes::channel}},
     &SampleArrays::first_frame},
    {{"image_latents",
      "latents of a video that begins with the first frame and is grey, as the transformer takes "
      "them",
      &SampleShapes::image_latents, DType::float32, axes::latents},
     &SampleArrays::image_latents},
    {{"image_rows", "rows of the vision encoder for the first frame", &SampleShapes::image_rows},
     &SampleArrays::image_rows},
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

/// What is compared, as texts.
std::vector<std::string> texts_of_sample(const SampleRecord& record) {
  std::vector<std::string> texts;
  for (const SampleText& text : compared_sample_texts) texts.push_back(record.*text.text);
  return texts;
}

/// What the file says that it was made from; empty if that is damaged.
std::optional<SampleRecord> read_record(hid_t file, const std::vector<ExpectedArray>& arrays) {
  constexpr std::size_t max_text = std::size_t{1} << 20;
  SampleRecord record;
  for (const SampleText& compared : compared_sample_texts) {
    auto text = hdf5::read_text(file, compared.name, max_text);
    if (!text) return std::nullopt;
    record.*compared.text = std::move(*text);
  }
  const bool has_all = std::ranges::all_of(arrays, [&](const ExpectedArray& array) {
    return hdf5::dataset_shape(file, array.name.c_str(), hdf5::native_type(array.dtype))
        .has_value();
  });
  if (!has_all || !has_checksum_of_all(file, texts_of_sample(record), arrays)) return std::nullopt;
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

std::vector<std::string> names_of_arrays(const SampleShapes& shapes) {
  std::vector<std::string> names;
  for (const ExpectedArray& array : expected_arrays(sample_arrays, shapes)) {
    names.push_back(array.name);
  }
  return names;
}

std::filesystem::path cached_path(const std::filesystem::path& cache, const SampleRecord& record) {
  Hash hash;
  for (const SampleText& text : compared_sample_texts) hash.add(record.*text.text);
  return cache / (hash.hex() + ".h5");
}

void write_sample(const comm::Group& group, const CachedSample& sample,
                  const SampleArrays& values) {
  const trace::Scope scope(trace::spans::write);
  std::vector<StoredArray> arrays;
  for (const auto& array : sample_arrays) {
    const std::optional<Sharded>& x = values.*array.values;
    const Shape& shape = sample.shapes.*array.shape;
    expect(x.has_value() == !shape.empty() && (!x || x->layout.global() == shape),
           "{} of a sample is not given in the shape {}", array.name, shape);
    if (x) arrays.push_back({array.name, array.meaning, *x, array.dtype, array.axes});
  }
  const std::string process = fmt::format("{}{}", processes_of_this_host(), getpid());
  const std::filesystem::path made =
      sample.path.parent_path() / fmt::format("{}.{}.h5", sample.path.stem().string(),
                                              comm::broadcast_texts(group, {process}, 0).front());
  write_arrays(group, made, hdf5::Storage::chunks, arrays,
               [&](hid_t file, const Checksums& checksums) {
                 hdf5::write_title(file, "encoded training sample of reelmesh");
                 hdf5::write_attribute(file, "Conventions", "CF-1.8");
                 hdf5::write_attribute(file, "file", as_utf8(sample.record.file));
                 for (const SampleText& text : compared_sample_texts) {
                   hdf5::write_attribute(file, text.name, sample.record.*text.text);
                 }
                 hdf5::write_attribute(file, checksum_name,
                                       checksum_of_all(texts_of_sample(sample.record), checksums));
               });
  comm::run_on_first_rank(group, [&] { publish(made, sample); });
}

void prepare_cache(const std::filesystem::path& cache) {
  namespace fs = std::filesystem;
  create_folders(cache);
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
  const std::vector<ExpectedArray> arrays = expected_arrays(sample_arrays, expected.shapes);
  const auto record = read_record(sample.file_.get(), arrays);
  if (!record) return std::nullopt;
  for (const auto& [name, shape, dtype] : arrays) {
    if (hdf5::dataset_shape(sample.file_.get(), name.c_str(), hdf5::native_type(dtype)) != shape) {
      problem = fmt::format("has a {} of another shape than {}", name, shape);
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
  return holds_arrays(file_.get(), expected_arrays(sample_arrays, sample_.shapes));
}

Tensor SampleFile::read(Shape SampleShapes::*member, const Box& box) const {
  const auto array = std::ranges::find(sample_arrays, member, &ArrayKind<SampleShapes>::shape);
  const Shape& shape = sample_.shapes.*member;
  expect(!shape.empty() && whole_box(shape).contains(box), "{} of {} {}", to_string(box),
         array->name, shape);
  require(box.empty() || hdf5::has_chunks(file_.get(), array->name, hdf5::native_type(array->dtype),
                                          shape, box.offset[0], box.extent[0]),
          Status::data, "{}: {} {} cannot be read: the file is damaged", sample_.path.string(),
          array->name, to_string(box));
  try {
    return hdf5::read_values(file_.get(), array->name, array->dtype, box);
  } catch (const Error& error) {
    fail(Status::data, "{}", error.what());
  }
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
