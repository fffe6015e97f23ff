#include "base/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"

namespace reelmesh {
namespace {

/// Throws Error(status) with the text of errno unless `done`. errno is read in here: as an argument
/// of require() it could be evaluated before the call that sets it.
void require_system(bool done, Status status, const std::filesystem::path& path,
                    std::string_view doing) {
  if (!done) fail(status, "{}: cannot {}: {}", path.string(), doing, std::strerror(errno));
}

}  // namespace

Descriptor open_file(const std::filesystem::path& path, int flags) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  const bool creating = (flags & O_CREAT) != 0;
  require_system(static_cast<bool>(file), creating ? Status::cannot_create : Status::io, path,
                 creating ? "create it" : "open it");
  return file;
}

std::size_t read_at(int file, void* bytes, std::size_t count, off_t at) {
  auto* into = static_cast<std::byte*>(bytes);
  std::size_t done = 0;
  while (done < count) {
    errno = 0;
    const ssize_t found = ::pread(file, into + done, count - done, at + static_cast<off_t>(done));
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0) break;
    done += static_cast<std::size_t>(found);
  }
  return done;
}

void write_at(int file, const std::filesystem::path& path, const void* bytes, std::size_t count,
              off_t at) {
  const auto* next = static_cast<const std::byte*>(bytes);
  while (count > 0) {
    const ssize_t written = ::pwrite(file, next, count, at);
    if (written < 0 && errno == EINTR) continue;
    require_system(written >= 0, Status::io, path, "write to it");
    next += written;
    at += written;
    count -= static_cast<std::size_t>(written);
  }
}

void close_file(Descriptor file, const std::filesystem::path& path) {
  require_system(::close(file.release()) == 0, Status::io, path, "close it");
}

void create_folders(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, Status::cannot_create, "{}: cannot create it: {}", folder.string(),
          error.message());
}

Descriptor create_empty(const std::filesystem::path& path) {
  ::unlink(path.c_str());  // if this fails, the next line says why
  return open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
}

bool is_at(int file, const std::filesystem::path& path) {
  struct stat opened = {}, named = {};
  return ::fstat(file, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

void reserve_space(const std::filesystem::path& path, std::int64_t bytes) {
  const Descriptor file = open_file(path, O_RDWR);
  const off_t end = ::lseek(file.get(), 0, SEEK_END);
  const int error = ::posix_fallocate(file.get(), 0, end + bytes);
  if (error != 0) {
    fail(Status::io, "{}: cannot reserve {} of disk space: {}", path.string(),
         format_bytes(static_cast<double>(end + bytes)), std::strerror(error));
  }
}

std::int64_t cached_bytes(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const off_t size = file.get() < 0 ? 0 : ::lseek(file.get(), 0, SEEK_END);
  if (size <= 0) return 0;
  const auto length = static_cast<std::size_t>(size);
  void* const mapped = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return 0;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((length + page - 1) / page);
  const bool known = ::mincore(mapped, length, pages.data()) == 0;
  ::munmap(mapped, length);
  if (!known) return 0;
  const auto present = std::ranges::count_if(pages, [](unsigned char p) { return (p & 1U) != 0; });
  return std::min<std::int64_t>(size, present * static_cast<std::int64_t>(page));
}

void flush_to_disk(const std::filesystem::path& path) {
  const Descriptor file = open_file(path, O_RDONLY);
  // Some file systems cannot sync a folder and return EINVAL; no data is lost then.
  require_system(::fsync(file.get()) == 0 || errno == EINVAL, Status::io, path,
                 "bring it to the disk");
}

void discard(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found = {};
  if (!file || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode)) return;
  if (found.st_nlink == 1) (void)!::ftruncate(file.get(), 0);
  ::unlink(path.c_str());
}

}  // namespace reelmesh
