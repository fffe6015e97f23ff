#include "base/file_state.hpp"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/error.hpp"

namespace reelmesh {
namespace {

FilesInUse* files_in_use = nullptr;

FileState state_from(const struct stat& status) {
  return {.inode = status.st_ino,
          .regular = S_ISREG(status.st_mode),
          .size = status.st_size,
          .modified = {status.st_mtim.tv_sec, status.st_mtim.tv_nsec},
          .changed = {status.st_ctim.tv_sec, status.st_ctim.tv_nsec}};
}

std::string shown(const FileState::Time& time) {
  const std::time_t seconds = time.seconds;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32] = "";
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:09}Z", text, time.nanoseconds);
}

}  // namespace

std::string FileState::text() const {
  return fmt::format("{},{},{}.{:09},{}.{:09}", inode, size, modified.seconds, modified.nanoseconds,
                     changed.seconds, changed.nanoseconds);
}

FileState file_state(int descriptor, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    fail(Status::io, "{}: {}", path.string(), std::strerror(errno));
  }
  return state_from(status);
}

FileState file_state(const std::filesystem::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? state_from(status) : FileState{};
}

void require_unchanged(const std::string& name, const FileState& before, const FileState& now) {
  if (now == before) return;
  require(now != FileState{}, Status::data, "{}: the file was removed while the job uses it", name);
  std::vector<std::string> changes;
  const auto compare = [&](const char* what, const auto& found, const auto& expected) {
    if (found != expected) changes.push_back(fmt::format("{} {}, was {}", what, found, expected));
  };
  compare("inode", now.inode, before.inode);
  compare("bytes", now.size, before.size);
  if (now.modified != before.modified) {
    compare("time of modification", shown(now.modified), shown(before.modified));
  }
  if (now.changed != before.changed) {
    compare("time of change", shown(now.changed), shown(before.changed));
  }
  fail(Status::data,
       "{}: the file was changed or replaced while the job uses it ({}), expected the same bytes "
       "until its end",
       name, fmt::join(changes, "; "));
}

FilesInUse::FilesInUse() : outer_(files_in_use) { files_in_use = this; }
FilesInUse::~FilesInUse() { files_in_use = outer_; }

void use_file(const std::filesystem::path& path, const FileState& state) {
  if (files_in_use == nullptr) return;
  FileState first;
  {
    const std::lock_guard lock(files_in_use->mutex_);
    first = files_in_use->states_.emplace(path, state).first->second;
  }
  require_unchanged(path.string(), first, state);
}

void use_copy(const std::filesystem::path& path, Descriptor copy) {
  expect(files_in_use != nullptr, "{}: a copy outside a job", path.string());
  const std::lock_guard lock(files_in_use->mutex_);
  files_in_use->copies_[path] = std::make_shared<const Descriptor>(std::move(copy));
}

std::shared_ptr<const Descriptor> copy_in_use(const std::filesystem::path& path) {
  for (FilesInUse* files = files_in_use; files != nullptr; files = files->outer_) {
    const std::lock_guard lock(files->mutex_);
    const auto found = files->copies_.find(path);
    if (found != files->copies_.end()) return found->second;
  }
  return nullptr;
}

}  // namespace reelmesh
