#include "store/output_folder.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/new_file.hpp"
#include "store/check.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

/// Errors of the file system as Error(cannot_create).
template <class F>
void use(const fs::path& folder, F&& work) {
  try {
    work();
  } catch (const fs::filesystem_error& error) {
    const fs::path& path = error.path1();
    fail(Status::cannot_create, "output folder {} cannot be used: {}{}", folder.string(),
         path.empty() || path == folder ? "" : path.string() + ": ", error.code().message());
  }
}

void require_own_subfolders(const fs::path& folder) {
  for (const std::string& subfolder : subfolders_of(folder)) {
    const fs::file_status found = fs::symlink_status(folder / subfolder);
    require(!fs::exists(found) || fs::is_directory(found), Status::cannot_create,
            "output folder {}: found {} {}, expected a folder, since a job removes and writes "
            "only files of its own",
            folder.string(), fs::is_symlink(found) ? "the link" : "the file", subfolder);
  }
}

/// A file or folder in an output folder, or in a subfolder of its own, of a kind that `counts`.
template <class Counts>
std::optional<fs::path> find(const fs::path& folder, Counts&& counts) {
  std::vector<std::string> subfolders = subfolders_of(folder);
  const auto is_own = [&](const fs::path& place) {
    return std::ranges::find(subfolders, place.string()) != subfolders.end();
  };
  const auto found_in = [&](const std::string& subfolder) -> std::optional<fs::path> {
    for (const auto& entry : fs::directory_iterator(folder / subfolder)) {
      const fs::path name = entry.path().filename();
      if (is_own(subfolder / name)) continue;
      if (counts(job_file_kind(subfolder, name.string()))) return subfolder / name;
    }
    return std::nullopt;
  };
  if (auto found = found_in("")) return found;
  for (const std::string& subfolder : subfolders) {
    if (!fs::is_directory(folder / subfolder)) continue;
    if (auto found = found_in(subfolder)) return found;
  }
  return std::nullopt;
}

/// A file or folder that is not just left by a job that ended before it has written job.h5.
std::optional<fs::path> find_content(const fs::path& folder) {
  return find(folder,
              [](JobFile kind) { return kind != JobFile::temporary && kind != JobFile::lock; });
}

/// What remove_sampled_clips() leaves in a folder of clips.
std::optional<fs::path> find_foreign(const fs::path& folder) {
  return find(folder, [](JobFile kind) { return kind == JobFile::foreign; });
}

void require_job(const fs::path& folder, const fs::path& content) {
  const fs::path index = folder / "job.h5";
  const fs::file_status found = fs::symlink_status(index);
  require(fs::exists(found), Status::cannot_create,
          "output folder {} is not empty and not of a job: found {} and no job.h5; choose another "
          "output.path",
          folder.string(), content.string());
  const hdf5::File file = fs::is_regular_file(found) ? hdf5::open_if_valid(index) : hdf5::File();
  require(file && hdf5::has_text(file.get(), "program", "reelmesh"), Status::cannot_create,
          "output folder {} is not empty and not of a job: its job.h5 is damaged or not of "
          "reelmesh; choose another output.path",
          folder.string());
}

}  // namespace

OutputFolder::OutputFolder(fs::path folder, Existing existing, Product product)
    : folder_(std::move(folder)), existing_(existing), product_(product) {
  use(folder_, [&] {
    fs::create_directories(folder_);
    lock_ = FolderLock(folder_);
    require_own_subfolders(folder_);
    const std::optional<fs::path> content = find_content(folder_);
    if (!content) return;
    require(existing_ != Existing::fail, Status::cannot_create,
            "output folder {} exists and is not empty; use --output.if-exists resume to {}, or "
            "replace to start again",
            folder_.string(), product_ == Product::clips ? "make the missing clips" : "train on");
    require_job(folder_, *content);
    if (existing_ != Existing::resume) return;
    const std::optional<fs::path> other = file_of_other_product(folder_, product_);
    require(!other, Status::cannot_create,
            "output folder {}: found {}, of a job that {}; expected one that {}; choose another "
            "output.path",
            folder_.string(), other.value_or("").string(),
            product_ == Product::clips ? "trains" : "makes clips",
            product_ == Product::clips ? "makes clips" : "trains");
  });
}

void OutputFolder::require_usable_samples() const {
  use(folder_, [&] {
    for (const fs::path& clips : sampled_folders(folder_)) {
      require(
          fs::is_directory(fs::symlink_status(clips)), Status::cannot_create,
          "output folder {}: found {}, which is not a folder but a link or a file, expected one "
          "of clips that a training makes",
          folder_.string(), clips.string());
      require_own_subfolders(clips);
      const std::optional<fs::path> content =
          existing_ == Existing::replace ? find_foreign(clips) : find_content(clips);
      if (!content) continue;
      require(
          existing_ != Existing::replace, Status::cannot_create,
          "output folder {} is not empty and not only of a job: found {}, which is not removed; "
          "choose another output.path",
          clips.string(), content->string());
      require_job(clips, *content);
      const FolderLock usable(clips);
    }
  });
}

bool OutputFolder::is_own_folder(const fs::path& folder, std::string_view except) const {
  std::error_code error;
  const auto is = [&](const fs::path& own) { return fs::equivalent(folder, own, error); };
  const auto has = [&](const fs::path& own) {
    return is(own) || std::ranges::any_of(subfolders_of(own), [&](const std::string& subfolder) {
             return (own != folder_ || subfolder != except) && is(own / subfolder);
           });
  };
  return fs::is_directory(folder, error) &&
         (has(folder_) || std::ranges::any_of(step_folders(folder_), has));
}

bool OutputFolder::is_written_folder(const fs::path& folder) const {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return false;
  if (is_own_folder(folder)) return true;
  return std::ranges::any_of(fs::directory_iterator(folder, error), [&](const auto& entry) {
    return !entry.is_directory(error) && is_written(entry.path());
  });
}

bool OutputFolder::is_written(const fs::path& file) const {
  constexpr int max_links = 40;  // as Linux follows
  fs::path path = file;
  std::error_code error;
  for (int links = 0; links < max_links; ++links) {
    const fs::path parent = path.has_parent_path() ? path.parent_path() : ".";
    for (const std::string& subfolder : subfolders_with(path.filename().string())) {
      const auto is_in = [&](const fs::path& own) {
        return fs::equivalent(parent, own / subfolder, error);
      };
      if (is_in(folder_) || std::ranges::any_of(step_folders(folder_), is_in)) return true;
    }
    if (!fs::is_symlink(path, error)) return false;
    path = parent / fs::read_symlink(path, error);
  }
  return false;
}

void OutputFolder::prepare() const {
  use(folder_, [&] {
    if (product_ == Product::clips) fs::create_directories(folder_ / "clips");
    // Fail now rather than after hours of work if files cannot be created here.
    for (const fs::path& file : files_of(product_)) {
      if (fs::is_directory((folder_ / file).parent_path())) const NewFile usable(folder_ / file);
    }
    remove_job_files(folder_, {JobFile::temporary, JobFile::status, JobFile::trace_part});
    if (existing_ != Existing::replace) return;
    remove_job_files(folder_, {JobFile::result, JobFile::restart});  // other jobs may use the cache
    remove_sampled_clips(folder_);
    remove_kept_results(folder_);
    remove_job_files(folder_, {JobFile::index});  // last: without it the rest would be refused
  });
}

}  // namespace reelmesh
