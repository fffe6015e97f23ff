#pragma once
#include <cstddef>
#include <filesystem>

#include "weights/mapped_file.hpp"

namespace reelmesh {

/// A file that appears under its name only when it is complete and on disk. Destroyed before
/// commit(), it leaves nothing behind.
class NewFile {
 public:
  /// Throws Error(cannot_create).
  explicit NewFile(std::filesystem::path path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::size_t bytes);  ///< throws Error(io)
  void commit();                                    ///< throws Error(io)

 private:
  std::filesystem::path path_, temporary_;
  Handle<int, detail::close_file, -1> descriptor_;
};

}  // namespace reelmesh
