#include "store/lock.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/system.hpp"
#include "store/job.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view holder_begins = "process ";

std::string contents(int file) {
  std::array<char, 400> text{};
  const ssize_t count = ::pread(file, text.data(), text.size() - 1, 0);
  std::string holder(text.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  return holder.substr(0, holder.find('\n'));
}

/// Whether another program may have written the file, which then must not be overwritten.
bool is_foreign(int file) {
  struct stat found = {};
  if (::fstat(file, &found) != 0 || !S_ISREG(found.st_mode) || found.st_nlink > 1) return true;
  return found.st_size > 0 && !contents(file).starts_with(holder_begins);
}

Descriptor open_lock(const fs::path& path) {
  const auto require_own = [&](bool own) {
    require(own, Status::cannot_create,
            "{}: found a file, link or folder of this name that no job has written, expected none",
            path.string());
  };
  std::error_code missing;
  const fs::file_status found = fs::symlink_status(path, missing);
  require_own(!fs::exists(found) || fs::is_regular_file(found));
  Descriptor file = open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
  require_own(!is_foreign(file.get()));
  return file;
}

void write_holder(int file) {
  const std::string text =
      fmt::format("{}{} on {} since {}\n", holder_begins, ::getpid(), host_name(), iso8601_now());
  // Only for messages, so failure changes nothing.
  if (::ftruncate(file, 0) == 0) (void)!::pwrite(file, text.data(), text.size(), 0);
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder) : path_(folder / ".lock") {
  for (;;) {
    Descriptor file = open_lock(path_);
    // A lock of the open file (OFD), as a lock of the process would end with any close of the file.
    struct flock whole = {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (::fcntl(file.get(), F_OFD_SETLK, &whole) != 0) {
      if (errno == EAGAIN || errno == EACCES) {
        const std::string holder = contents(file.get());
        fail(Status::cannot_create,
             "output folder {} is in use by another job ({}); found {} locked", folder.string(),
             holder.empty() ? "which starts" : holder, path_.filename().string());
      }
      log::warning(
          "{}: cannot be locked here ({}): two jobs must not use this folder at once, and "
          "ranks write files one after the other",
          path_.string(), std::strerror(errno));
    } else if (!is_at(file.get(), path_)) {
      continue;  // its holder has just ended
    }
    write_holder(file.get());
    file_ = std::move(file);
    return;
  }
}

FolderLock::~FolderLock() {
  if (!file_) return;
  if (is_at(file_.get(), path_)) ::unlink(path_.c_str());  // before it is unlocked
}

}  // namespace reelmesh
