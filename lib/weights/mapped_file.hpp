#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/handle.hpp"

namespace reelmesh {

namespace detail {
void close_file(int descriptor);
struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::byte* memory) const;
};
}  // namespace detail

/// A regular file, mapped for reading only. Symbolic links are followed.
class MappedFile {
 public:
  /// Throws Error(no_input) where the file is missing, Error(io) where it cannot be read,
  /// Error(data) where it is a folder or a device.
  static MappedFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size() const { return size_; }

  /// Bytes [begin, begin + count) in memory. Reading mapped bytes that a file has lost ends the
  /// process (SIGBUS), so the file is asked for its size first: throws Error(data) where it has
  /// shrunk. Ask anew for every few megabytes.
  const std::byte* view(std::int64_t begin, std::int64_t count) const;

  /// The pages of these bytes no longer count as memory of this process. They can still be read.
  void forget(std::int64_t begin, std::int64_t count) const;

  /// Bytes [begin, begin + count) read into memory, without the mapping: a file that shrinks
  /// meanwhile is Error(data).
  std::string copy(std::int64_t begin, std::int64_t count) const;

 private:
  void check_size(std::int64_t begin, std::int64_t count) const;

  std::filesystem::path path_;
  std::int64_t size_ = 0;
  Handle<int, detail::close_file, -1> descriptor_;
  std::unique_ptr<std::byte, detail::Unmap> memory_;
};

}  // namespace reelmesh
