#include "weights/new_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace reelmesh {

NewFile::NewFile(std::filesystem::path path, Flush flush)
    : path_(std::move(path)), temporary_(path_), flush_(flush) {
  temporary_ += fmt::format(".{}.partial", ::getpid());
  ::unlink(temporary_.c_str());  // of a process that was killed; nothing is written through a link
  descriptor_ = Handle<int, detail::close_file, -1>(
      ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  require(static_cast<bool>(descriptor_), Status::cannot_create, "{}: cannot be created: {}",
          path_.string(), std::strerror(errno));
}

NewFile::~NewFile() {
  if (descriptor_) ::unlink(temporary_.c_str());
}

void NewFile::write(const void* data, std::size_t bytes) {
  const auto* next = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_.get(), next, bytes);
    if (written < 0 && errno == EINTR) continue;
    require(written >= 0, Status::io, "{}: cannot be written: {}", path_.string(),
            std::strerror(errno));
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void NewFile::commit() {
  const auto check = [&](int result) {
    require(result >= 0, Status::io, "{}: cannot be written: {}", path_.string(),
            std::strerror(errno));
  };
  if (flush_ == Flush::yes) check(::fsync(descriptor_.get()));
  check(::rename(temporary_.c_str(), path_.c_str()));
  descriptor_.reset();
  if (flush_ == Flush::no) return;
  // The rename is durable only after the folder is synced.
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  const Handle<int, detail::close_file, -1> directory(
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  check(directory.get());
  check(::fsync(directory.get()));
}

}  // namespace reelmesh
