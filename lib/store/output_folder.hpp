#pragma once
// The folder that a job writes to.
#include <filesystem>

#include "store/job_files.hpp"
#include "store/lock.hpp"

namespace reelmesh {

/// What to do if the output folder is not empty.
enum class Existing { fail, resume, replace };

/// An output folder, locked by one rank for the time of the job. Opening it changes nothing in it
/// except the lock, so that a job can be refused for other reasons before prepare() removes files.
class OutputFolder {
 public:
  /// Makes the folder if there is none, and locks it. Error(cannot_create) if it cannot be made or
  /// locked; if one of job_subfolders in it is not a folder, but for instance a link; if it has
  /// content with `fail`; if it has content and no job.h5 of reelmesh with the others; if a job
  /// with another product wrote it with `resume`. What a job leaves that ended before it wrote
  /// job.h5 does not count as content: .lock, temporary files, empty folders.
  OutputFolder(std::filesystem::path folder, Existing existing, Product product = Product::clips);

  /// Whether the job removes or writes this file, which may be given by way of links.
  bool is_written(const std::filesystem::path& file) const;

  /// Removes the working files that an earlier job left (status.json, trace/, temporary files),
  /// with `replace` also its results, restart files and cache, and nothing else; makes clips/ if
  /// these are the product.
  /// Error(cannot_create), before anything is removed, if no files can be created.
  void prepare() const;

 private:
  std::filesystem::path folder_;
  Existing existing_;
  Product product_;
  FolderLock lock_;
};

}  // namespace reelmesh
