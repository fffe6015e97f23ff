#include "base/new_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace reelmesh {
namespace {

constexpr std::string_view ending = ".partial";

}  // namespace

std::filesystem::path temporary_path(const std::filesystem::path& path) {
  return path.parent_path() / fmt::format(".{}{}", path.filename().string(), ending);
}

std::string_view name_when_complete(std::string_view temporary_name) {
  const std::size_t added = ending.size() + 1;
  if (temporary_name.size() <= added || !temporary_name.starts_with('.') ||
      !temporary_name.ends_with(ending)) {
    return {};
  }
  return temporary_name.substr(1, temporary_name.size() - added);
}

NewFile::NewFile(std::filesystem::path path, Flush flush)
    : path_(std::move(path)),
      temporary_(temporary_path(path_)),
      flush_(flush),
      file_(create_empty(temporary_)) {}

NewFile::~NewFile() {
  if (file_ && is_at(file_.get(), temporary_)) discard(temporary_);
}

void NewFile::write(const void* data, std::size_t bytes) {
  const auto* next = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_.get(), next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      fail(Status::io, "{}: cannot be written: {}", path_.string(), std::strerror(errno));
    }
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void NewFile::commit() {
  if (flush_ == Flush::yes) flush_to_disk(temporary_);
  require(
      is_at(file_.get(), temporary_), Status::io,
      "{}: was removed or replaced before it was complete, maybe by another process that writes "
      "{}",
      temporary_.string(), path_.filename().string());
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  require(!error, Status::io, "{}: cannot rename {} to it: {}", path_.string(),
          temporary_.filename().string(), error.message());
  file_.reset();
  // The rename is on the disk only when the folder is.
  if (flush_ == Flush::yes) flush_to_disk(path_.has_parent_path() ? path_.parent_path() : ".");
}

}  // namespace reelmesh
