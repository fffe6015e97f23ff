#pragma once
#include <chrono>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "weights/regular_file.hpp"

namespace reelmesh {

/// A hash of 16 blocks of 4 KiB of a file, from the first byte to the last, at equal distances.
/// Error(io); Error(data) if it has changed since it was opened.
std::string sample_hash(const RegularFile& file);

/// Keeps what a job has found in files for later jobs, in one small JSON file for each. An
/// entry is valid while the file has the same path (links resolved), inode, size, times of
/// modification and of change, to the nanosecond, and sample of bytes. The folder may be deleted at
/// any time.
class FileCache {
 public:
  /// A file that changed less than this before it was opened is not remembered: another change may
  /// come with the same time, since some file systems only count seconds.
  static constexpr std::chrono::milliseconds usual_settling{2000};

  /// format: of the values and their version; entries of others are not used. folder: of the
  /// entries; created when needed. Empty: nothing is remembered.
  FileCache(std::string format, std::filesystem::path folder,
            std::chrono::milliseconds settling = usual_settling)
      : format_(std::move(format)), folder_(std::move(folder)), settling_(settling) {}

  /// $XDG_CACHE_HOME/reelmesh/NAME, by default ~/.cache/reelmesh/NAME. As the XDG specification
  /// says, relative folders are ignored; empty without either variable.
  static std::filesystem::path folder_of_user(std::string_view name);

  const std::filesystem::path& folder() const { return folder_; }

  /// The values that store() was given for a file; null if its entry is missing, damaged,
  /// unreadable or of another file. sample: sample_hash(file).
  nlohmann::json find(const RegularFile& file, const std::string& sample) const;
  /// The same of the file that had this path, which is no longer there; null if it is.
  nlohmann::json find_missing(const std::filesystem::path& file) const;
  /// Remembers an object of numbers, strings and lists of these, unless the file changed while, or
  /// just before, it was open. Error(data) for other values; errors of NewFile,
  /// std::filesystem::filesystem_error.
  void store(const RegularFile& file, const std::string& sample, nlohmann::json values) const;

 private:
  nlohmann::json entry(const std::filesystem::path& file) const;

  std::string format_;
  std::filesystem::path folder_;
  std::chrono::milliseconds settling_;
};

}  // namespace reelmesh
