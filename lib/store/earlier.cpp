#include "store/earlier.hpp"

#include <charconv>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "store/clip.hpp"
#include "store/job_files.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

/// The clip whose file has this name; empty if it is not a name that write_clip uses.
std::optional<int> clip_number(const std::string& name) {
  int clip = -1;
  std::from_chars(name.data(), name.data() + name.size(), clip);
  if (clip < 0 || clip_path("", clip).filename() != name) return std::nullopt;
  return clip;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  const fs::file_type found = fs::symlink_status(folder, error).type();
  require(
      found == fs::file_type::not_found || found == fs::file_type::directory, Status::cannot_create,
      "{}: found a file or a link, expected a folder for clips of earlier jobs", folder.string());
  create_folders(folder);
}

/// A path in `folder` at which nothing is: with the file's own name, or with a number in it.
fs::path free_path(const fs::path& folder, const fs::path& file) {
  fs::path path = folder / file.filename();
  std::error_code error;
  for (int i = 1; fs::symlink_status(path, error).type() != fs::file_type::not_found; ++i) {
    path = folder / fmt::format("{}.{}{}", file.stem().string(), i, file.extension().string());
  }
  return path;
}

}  // namespace

void move_clips_to_folders(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(folder / "clips", error), end; !error && it != end;
       it.increment(error)) {
    const std::optional<int> clip = clip_number(it->path().filename().string());
    std::error_code unreadable;
    if (clip && *clip >= first_clip_in_folder && it->is_regular_file(unreadable)) {
      files.push_back(it->path());
    }
  }
  for (const fs::path& file : files) {
    const fs::path to = clip_path(folder, *clip_number(file.filename().string()));
    if (fs::symlink_status(to, error).type() != fs::file_type::not_found) continue;
    create_folders(to.parent_path());
    fs::rename(file, to, error);
    require(!error, Status::io, "{}: cannot move it to {}: {}", file.string(), to.string(),
            error.message());
  }
}

std::size_t set_clips_aside(const fs::path& folder, const std::function<bool(int clip)>& stay) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const std::string& subfolder : clip_subfolders(folder)) {
    for (fs::directory_iterator it(folder / subfolder, error), end; !error && it != end;
         it.increment(error)) {
      const fs::path& file = it->path();
      const std::optional<int> clip = clip_number(file.filename().string());
      std::error_code unreadable;
      if (!clip || fs::is_directory(it->symlink_status(unreadable))) continue;
      if (file != clip_path(folder, *clip) || !stay(*clip)) files.push_back(file);
    }
    require(!error, Status::io, "{}: cannot list it: {}", (folder / subfolder).string(),
            error.message());
  }
  if (files.empty()) return 0;
  const fs::path earlier = folder / "earlier";
  make_folder(earlier);
  for (const fs::path& file : files) {
    const fs::path to = free_path(earlier, file);
    fs::rename(file, to, error);
    require(!error, Status::io, "{}: cannot move it to {}: {}", file.string(), to.string(),
            error.message());
  }
  return files.size();
}

}  // namespace reelmesh
