#pragma once
// One job at a time works on an output folder.
#include <filesystem>

#include "base/file.hpp"

namespace reelmesh {

/// A lock of folder/.lock, held by this process until it is destroyed or the process ends, however
/// it ends. It is a lock of the operating system (fcntl), which network file systems share among
/// hosts where they support locks; where they do not, a warning says so. The file names the host,
/// the process and the time of the holder. A file of this name that no job has written, and a link,
/// stays as it is.
class FolderLock {
 public:
  FolderLock() = default;  ///< holds nothing
  /// Error(cannot_create) if another process holds the lock, with what the file says of it, or if
  /// the file cannot be created or is not of a job.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(FolderLock&& other) noexcept = default;
  FolderLock& operator=(FolderLock&& other) noexcept = default;
  ~FolderLock();

 private:
  Descriptor file_;
  std::filesystem::path path_;
};

}  // namespace reelmesh
