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

  /// Whether the job, or one that makes clips of a training in samples/, removes or writes this
  /// file, which may be given by way of links.
  bool is_written(const std::filesystem::path& file) const;
  /// Whether this folder, or a file in it, is one that is_written().
  bool is_written_folder(const std::filesystem::path& folder) const;
  /// Whether this is the output folder, or one of job_subfolders in it or in one of samples/ but
  /// `except` in the output folder.
  bool is_own_folder(const std::filesystem::path& folder, std::string_view except = {}) const;
  /// Error(cannot_create) if in samples/ there is a folder of clips of a training that the job that
  /// makes them could not use: a link, or with content that is not of such a job, or, with
  /// `replace`, that it does not remove.
  void require_usable_samples() const;

  /// Removes the working files that an earlier job left (status.json, trace/, temporary files),
  /// with `replace` also its results and restart files, and nothing else; makes clips/ if
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
