#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/file.hpp"
#include "base/file_state.hpp"

namespace reelmesh {

/// A regular file, opened for reading. Symbolic links are followed. It is read with pread, not
/// mapped: a mapped file that is truncated, or whose disk fails, ends the process with a signal. If
/// there is a copy in use (copy_in_use), its bytes are read.
class RegularFile {
 public:
  /// Throws Error(no_input) if the file is missing, Error(io) if it cannot be read, Error(data) if
  /// it is not a regular file (a folder or a device, for instance).
  static RegularFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size() const { return state_.size; }
  /// When it was opened.
  const FileState& state() const { return state_; }
  std::chrono::system_clock::time_point opened() const { return opened_; }
  /// Now. Throws Error(io).
  FileState state_now() const { return file_state(descriptor_.get(), path_); }
  /// Error(data) if the opened file is no longer in its state(). Throws Error(io).
  void require_unchanged() const;

  /// Reads bytes [begin, begin + count), in parts if that is needed. Call require_unchanged() after
  /// the last part: then all of them are those of the file in its state(). Thread-safe. Throws
  /// Error(io); Error(data) if the file has shrunk.
  void read_part(std::int64_t begin, std::int64_t count, void* into) const;
  /// Bytes [begin, begin + count) of the file in its state(). Errors of both.
  std::string copy(std::int64_t begin, std::int64_t count) const;
  /// For messages: what the file is, if that is known (file_kind.hpp). Errors of both.
  std::string what_it_is() const;

 private:
  std::filesystem::path path_;
  std::chrono::system_clock::time_point opened_ = std::chrono::system_clock::now();
  FileState state_;
  Descriptor descriptor_;
  std::shared_ptr<const Descriptor> copy_;  ///< from which parts are read; null: the file
};

}  // namespace reelmesh
