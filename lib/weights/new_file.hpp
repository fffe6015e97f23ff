#pragma once
#include <cstddef>
#include <filesystem>

#include "weights/regular_file.hpp"

namespace reelmesh {

/// A file that appears under its name only when it is complete and flushed to disk. If it is
/// destroyed before commit(), no file is left behind.
class NewFile {
 public:
  /// Throws Error(cannot_create).
  explicit NewFile(std::filesystem::path path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::size_t bytes);  ///< appends; throws Error(io)
  void commit();                                    ///< syncs and renames; throws Error(io)

 private:
  std::filesystem::path path_, temporary_;
  Handle<int, detail::close_file, -1> descriptor_;
};

}  // namespace reelmesh
