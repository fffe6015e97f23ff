#include "media/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/system.hpp"
#include "base/units.hpp"

namespace reelmesh::media {

InputFile open_input(const std::filesystem::path& file, const std::string& where,
                     std::int64_t max_bytes) {
  InputFile input;
  input.name = fmt::format("{}: {}", where, file.string());
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const int error = errno;
    fail(means_no_such_file(error) ? Status::no_input : Status::io, "{}: cannot be opened: {}",
         input.name, std::strerror(error));
  }
  input.stream = Handle<std::FILE*, detail::close_stream>(::fdopen(descriptor, "rb"));
  if (!input.stream) {
    const int error = errno;
    ::close(descriptor);
    fail(Status::io, "{}: cannot be opened: {}", input.name, std::strerror(error));
  }
  struct stat status {};
  require(::fstat(descriptor, &status) == 0, Status::io, "{}: {}", input.name,
          std::strerror(errno));
  require(S_ISREG(status.st_mode), Status::data, "{}: not a regular file", input.name);
  input.bytes = status.st_size;
  require(input.bytes > 0, Status::data, "{}: the file is empty", input.name);
  require(input.bytes <= max_bytes, Status::data, "{}: the file has {}, expected at most {}",
          input.name, format_bytes(static_cast<double>(input.bytes)),
          format_bytes(static_cast<double>(max_bytes)));
  return input;
}

void check_read(const InputFile& file) {
  require(std::ferror(file.stream.get()) == 0, Status::io, "{}: cannot be read: {}", file.name,
          std::strerror(errno));
}

std::string read_bytes(const InputFile& file, std::size_t count) {
  std::string bytes(count, '\0');
  bytes.resize(std::fread(bytes.data(), 1, count, file.stream.get()));
  check_read(file);
  return bytes;
}

}  // namespace reelmesh::media
