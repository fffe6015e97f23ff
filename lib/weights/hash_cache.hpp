#pragma once
#include "weights/contents.hpp"
#include "weights/file_cache.hpp"

namespace reelmesh {

/// Remembers the hashes of tensors from one job to the next, by weight file. Nothing here throws
/// for entries that are missing, damaged or unreadable, or that cannot be written: those tensors
/// count as unknown.
class HashCache {
 public:
  /// folder, settling: as FileCache.
  explicit HashCache(const std::filesystem::path& folder,
                     std::chrono::milliseconds settling = FileCache::usual_settling);
  static HashCache of_user() { return HashCache(FileCache::folder_of_user("hashes")); }

  const std::filesystem::path& folder() const { return files_.folder(); }

  /// What is known of the tensors of these files.
  TensorHashes find(const ModelContents& model) const;
  /// Remembers files that have not changed since they were opened. hashes: of all tensors, taken
  /// by this process, or by others whose ModelContents::identity() is the same. Returns
  /// the first error, empty if there was none.
  std::string store(const ModelContents& model, const TensorHashes& hashes) const;

 private:
  FileCache files_;
};

}  // namespace reelmesh
