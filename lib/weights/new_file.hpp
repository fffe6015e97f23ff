#pragma once
#include <cstddef>
#include <filesystem>

#include "weights/regular_file.hpp"

namespace reelmesh {

/// Whether a new file is flushed to the disk, so that it survives a crash of the machine. Without
/// it, large files in memory (/dev/shm), or of a measurement, are written at the speed of a copy.
enum class Flush { yes, no };

/// A file that appears under its name only when it is complete and, with Flush::yes, on the disk.
/// If it is destroyed before commit(), no file is left behind.
class NewFile {
 public:
  /// Throws Error(cannot_create).
  explicit NewFile(std::filesystem::path path, Flush flush = Flush::yes);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::size_t bytes);  ///< appends; throws Error(io)
  void commit();                                    ///< flushes and renames; throws Error(io)

 private:
  std::filesystem::path path_, temporary_;
  Flush flush_;
  Handle<int, detail::close_file, -1> descriptor_;
};

}  // namespace reelmesh
