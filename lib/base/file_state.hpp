#pragma once
// What of a file shows that its bytes have changed, and the files that must not change during a
// job.
#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/file.hpp"

namespace reelmesh {

/// What of a file changes if it is written, or replaced by another one. Two changes within one tick
/// of the file system's clock (a few milliseconds, on some systems seconds) look alike. Device
/// numbers are left out: those of network file systems differ between hosts, and may change when an
/// idle file system is mounted again. Two file systems hardly have files with the same inode and
/// times.
struct FileState {
  /// Seconds since 1970, and nanoseconds.
  struct Time {
    std::int64_t seconds = 0, nanoseconds = 0;
    auto operator<=>(const Time&) const = default;
  };
  std::uint64_t inode = 0;
  bool regular = false;  ///< neither a folder nor a device
  std::int64_t size = 0;
  Time modified;  ///< when its data changed; programs can set it (mtime)
  Time changed;   ///< when its data or attributes changed; set by the system only (ctime)
  bool operator==(const FileState&) const = default;

  /// Without spaces; equal for equal states of regular files.
  std::string text() const;
};

/// The state of an open file; Error(io) naming `path`.
FileState file_state(int descriptor, const std::filesystem::path& path);
/// The state of the file of this name, links followed; all zero if there is none.
FileState file_state(const std::filesystem::path& path);

/// Error(data) if the states differ, saying in what. name: begins the message, usually the path.
void require_unchanged(const std::string& name, const FileState& before, const FileState& now);

/// The files of a job, which must have the same bytes whenever they are read: when the model is
/// hashed, and when its weights are loaded, maybe hours later. While an object exists, use_file()
/// remembers the state in which this process uses each file first.
class FilesInUse {
 public:
  FilesInUse();
  ~FilesInUse();
  FilesInUse(const FilesInUse&) = delete;
  FilesInUse& operator=(const FilesInUse&) = delete;

 private:
  friend void use_file(const std::filesystem::path& path, const FileState& state);
  friend void use_copy(const std::filesystem::path& path, Descriptor copy);
  friend std::shared_ptr<const Descriptor> copy_in_use(const std::filesystem::path& path);
  FilesInUse* outer_;
  std::mutex mutex_;
  std::map<std::filesystem::path, FileState> states_;
  std::map<std::filesystem::path, std::shared_ptr<const Descriptor>> copies_;
};

/// To be called for a file that was opened in this state. Error(data) if the job has used another
/// file of this name, or the file in another state. Without a FilesInUse it does nothing.
void use_file(const std::filesystem::path& path, const FileState& state);

/// From now on, while the FilesInUse exists, the bytes of this file are read from a copy of it.
void use_copy(const std::filesystem::path& path, Descriptor copy);
/// Null if there is none.
std::shared_ptr<const Descriptor> copy_in_use(const std::filesystem::path& path);

}  // namespace reelmesh
