#include "weights/regular_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/file_kind.hpp"
#include "base/system.hpp"

namespace reelmesh {
RegularFile RegularFile::open(const std::filesystem::path& path) {
  RegularFile file;
  file.path_ = path;
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  file.descriptor_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.descriptor_) {
    const int error = errno;
    fail(means_no_such_file(error) ? Status::no_input : Status::io, "{}: cannot be opened: {}",
         path.string(), std::strerror(error));
  }
  file.state_ = file.state_now();
  require(file.state_.regular, Status::data, "{}: not a regular file", path.string());
  file.copy_ = copy_in_use(path);
  return file;
}

void RegularFile::require_unchanged() const {
  reelmesh::require_unchanged(path_.string(), state_, state_now());
}

void RegularFile::read_part(std::int64_t begin, std::int64_t count, void* into) const {
  expect(begin >= 0 && count >= 0 && begin <= size() && count <= size() - begin,
         "{}: {} bytes at {} of {}", path_.string(), count, begin, size());
  const int source = copy_ == nullptr ? descriptor_.get() : copy_->get();
  for (std::int64_t done = 0; done < count;) {
    const ssize_t got = ::pread(source, static_cast<std::byte*>(into) + done,
                                static_cast<std::size_t>(count - done), begin + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(Status::io, "{}: cannot be read: {}", path_.string(), std::strerror(errno));
    if (got == 0) {
      require_unchanged();
      fail(Status::data, "{}: ends after {} bytes, expected {}", path_.string(), begin + done,
           size());
    }
    done += got;
  }
}

std::string RegularFile::copy(std::int64_t begin, std::int64_t count) const {
  std::string out(static_cast<std::size_t>(count), '\0');
  read_part(begin, count, out.data());
  require_unchanged();
  return out;
}

std::string RegularFile::what_it_is() const {
  constexpr auto max = static_cast<std::int64_t>(file_kind_bytes);
  return reelmesh::what_it_is(copy(0, std::min(size(), max)));
}

}  // namespace reelmesh
