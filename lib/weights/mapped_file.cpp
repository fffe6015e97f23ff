#include "weights/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/system.hpp"

namespace reelmesh {
namespace detail {

void close_file(int descriptor) { ::close(descriptor); }
void Unmap::operator()(std::byte* memory) const { ::munmap(memory, bytes); }

}  // namespace detail

MappedFile MappedFile::open(const std::filesystem::path& path) {
  MappedFile file;
  file.path_ = path;
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  file.descriptor_ =
      Handle<int, detail::close_file, -1>(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.descriptor_) {
    const int error = errno;
    fail(means_no_such_file(error) ? Status::no_input : Status::io, "{}: cannot be opened: {}",
         path.string(), std::strerror(error));
  }
  struct stat status {};
  if (::fstat(file.descriptor_.get(), &status) != 0) {
    fail(Status::io, "{}: {}", path.string(), std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    fail(Status::data, "{}: not a regular file", path.string());
  }
  file.size_ = status.st_size;
  if (file.size_ == 0) return file;
  const auto bytes = static_cast<std::size_t>(file.size_);
  void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.descriptor_.get(), 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    fail(error == ENOMEM ? Status::unavailable : Status::io, "{}: {} bytes cannot be mapped: {}",
         path.string(), bytes, std::strerror(error));
  }
  file.memory_ = {static_cast<std::byte*>(memory), detail::Unmap{bytes}};
  return file;
}

FileState MappedFile::state() const {
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0) {
    fail(Status::io, "{}: {}", path_.string(), std::strerror(errno));
  }
  return {.inode = status.st_ino,
          .size = status.st_size,
          .modified = {status.st_mtim.tv_sec, status.st_mtim.tv_nsec},
          .changed = {status.st_ctim.tv_sec, status.st_ctim.tv_nsec}};
}

void MappedFile::check_size(std::int64_t begin, std::int64_t count) const {
  expect(begin >= 0 && count >= 0 && begin <= size_ && count <= size_ - begin,
         "{}: {} bytes at {} of {}", path_.string(), count, begin, size_);
  const std::int64_t size = state().size;
  if (size < begin + count) {
    fail(Status::data, "{}: the file has shrunk from {} to {} bytes while it was in use",
         path_.string(), size_, size);
  }
}

const std::byte* MappedFile::view(std::int64_t begin, std::int64_t count) const {
  check_size(begin, count);
  return memory_.get() + begin;
}

void MappedFile::release_pages(std::int64_t begin, std::int64_t count) const {
  // Only pages that lie completely inside, so that neighbouring bytes keep their pages.
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::int64_t first = (begin + page - 1) / page * page;
  const std::int64_t last = (begin + count) / page * page;
  if (first >= last) return;
  // Only a hint: failure is harmless.
  ::madvise(memory_.get() + first, static_cast<std::size_t>(last - first), MADV_DONTNEED);
}

std::string MappedFile::copy(std::int64_t begin, std::int64_t count) const {
  check_size(begin, count);
  std::string out(static_cast<std::size_t>(count), '\0');
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(descriptor_.get(), out.data() + done, out.size() - done,
                                begin + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(Status::io, "{}: {}", path_.string(), std::strerror(errno));
    if (got == 0) {
      fail(Status::data, "{}: ends after {} bytes, expected at least {}", path_.string(),
           begin + static_cast<std::int64_t>(done), begin + count);
    }
    done += static_cast<std::size_t>(got);
  }
  return out;
}

}  // namespace reelmesh
