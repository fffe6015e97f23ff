#include "train/kept.hpp"

#include "base/error.hpp"
#include "base/new_file.hpp"
#include "store/job_files.hpp"

namespace reelmesh::train {
namespace {

namespace fs = std::filesystem;

// The next result takes the place of a file by a new one, so that what is linked stays as it is.
void keep_file(const fs::path& file, const fs::path& kept) {
  const fs::path temporary = temporary_path(kept);
  fs::remove(temporary);
  std::error_code unsupported;
  fs::create_hard_link(file, temporary, unsupported);
  if (unsupported) fs::copy_file(file, temporary);
  fs::rename(temporary, kept);
}

// Those that are kept no longer, once `step` is.
std::vector<fs::path> others(const fs::path& output, std::int64_t step, const KeepRule& rule) {
  if (rule.what == KeepRule::What::all) return {};
  const fs::path own = output / "kept" / step_folder(step);
  std::vector<fs::path> all = kept_folders(output);
  std::erase(all, own);
  const std::size_t kept = rule.what == KeepRule::What::last
                               ? std::min(all.size(), static_cast<std::size_t>(rule.count - 1))
                               : 0;
  all.resize(all.size() - kept);  // the earliest
  return all;
}

}  // namespace

void keep_result(const fs::path& output, const fs::path& result, std::int64_t step,
                 const KeepRule& rule) {
  const fs::path from = fs::is_directory(result) ? result : result.parent_path();
  const fs::path kept = output / "kept" / step_folder(step) / from.filename();
  try {
    fs::create_directories(kept);
    for (const auto& entry : fs::directory_iterator(from)) {
      const fs::path name = entry.path().filename();
      if (job_file_kind(from.filename().string(), name.string()) == JobFile::result) {
        keep_file(entry.path(), kept / name);
      }
    }
    for (const fs::path& other : others(output, step, rule)) remove_kept_result(other);
  } catch (const fs::filesystem_error& error) {
    fail(Status::io, "{}: {}", kept.string(), error.code().message());
  }
}

}  // namespace reelmesh::train
