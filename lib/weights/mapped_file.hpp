#pragma once
#include <compare>
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

/// What of a file changes if it is written, or replaced by another one. Device numbers are left
/// out: those of network file systems differ between hosts.
struct FileState {
  /// Seconds since 1970, and nanoseconds.
  struct Time {
    std::int64_t seconds = 0, nanoseconds = 0;
    auto operator<=>(const Time&) const = default;
  };
  std::uint64_t inode = 0;
  std::int64_t size = 0;
  Time modified;  ///< when its data changed; programs can set it (mtime)
  Time changed;   ///< when its data or attributes changed; set by the system only (ctime)
  bool operator==(const FileState&) const = default;
};

/// A regular file, memory-mapped read-only. Symbolic links are followed.
class MappedFile {
 public:
  /// Throws Error(no_input) if the file is missing, Error(io) if it cannot be read, Error(data) if
  /// it is not a regular file (a folder or a device, for instance), Error(unavailable) if there are
  /// too few addresses left to map it (ulimit -v).
  static MappedFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size() const { return size_; }
  /// The state of the opened file now. Throws Error(io).
  FileState state() const;

  /// Bytes [begin, begin + count) of the mapping. Reading mapped bytes beyond the end of a file
  /// that has shrunk ends the process (SIGBUS). So the file's size is checked first: Error(data) if
  /// it has shrunk. Call it again every few megabytes.
  const std::byte* view(std::int64_t begin, std::int64_t count) const;

  /// Removes the pages of these bytes from the resident set of this process (MADV_DONTNEED). They
  /// can still be read.
  void release_pages(std::int64_t begin, std::int64_t count) const;

  /// Bytes [begin, begin + count), read without the mapping (pread). Error(data) if the file has
  /// shrunk, even during the call.
  std::string copy(std::int64_t begin, std::int64_t count) const;

 private:
  void check_size(std::int64_t begin, std::int64_t count) const;

  std::filesystem::path path_;
  std::int64_t size_ = 0;
  Handle<int, detail::close_file, -1> descriptor_;
  std::unique_ptr<std::byte, detail::Unmap> memory_;
};

}  // namespace reelmesh
