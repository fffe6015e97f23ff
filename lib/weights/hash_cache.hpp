#pragma once
#include <chrono>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "weights/contents.hpp"

namespace reelmesh {

/// Remembers the hashes of tensors from one job to the next, in one small JSON file for each weight
/// file. An entry is valid while the weight file has the same path (links resolved), inode, size,
/// times of modification and of change, to the nanosecond, and sample of bytes. Nothing here throws
/// for entries that are missing, damaged or unreadable, or that cannot be written: those tensors
/// count as unknown. The folder may be deleted at any time.
class HashCache {
 public:
  /// A file that changed less than this before it was opened is not remembered: another change may
  /// come with the same time, since some file systems only count seconds.
  static constexpr std::chrono::milliseconds usual_settling{2000};

  /// folder: of the entries; created when needed. Empty: nothing is remembered.
  explicit HashCache(std::filesystem::path folder,
                     std::chrono::milliseconds settling = usual_settling)
      : folder_(std::move(folder)), settling_(settling) {}
  /// In $XDG_CACHE_HOME/reelmesh/hashes, by default in ~/.cache. As the XDG specification says,
  /// relative folders are ignored; without either variable nothing is remembered.
  static HashCache of_user();

  const std::filesystem::path& folder() const { return folder_; }

  /// What is known of the tensors of these files.
  TensorHashes find(const ModelContents& model) const;
  /// Remembers files that have not changed since they were opened. hashes: of all tensors, taken
  /// by this process, or by others whose ModelContents::identity() is the same. Returns
  /// the first error, empty if there was none.
  std::string store(const ModelContents& model, const TensorHashes& hashes) const;

 private:
  std::filesystem::path entry_path(const std::filesystem::path& file) const;
  void write_entry(const ModelContents::File& file, nlohmann::json tensors,
                   std::chrono::system_clock::time_point opened) const;

  std::filesystem::path folder_;
  std::chrono::milliseconds settling_;
};

}  // namespace reelmesh
