#pragma once
#include <cstddef>
#include <filesystem>
#include <string_view>

#include "base/file.hpp"

namespace reelmesh {

/// folder/name → folder/.name.partial, the name of a file until it is complete.
std::filesystem::path temporary_path(const std::filesystem::path& path);
/// The inverse for names without folders: ".name.partial" → "name"; empty for other names.
std::string_view name_when_complete(std::string_view temporary_name);

/// Whether a new file is flushed to the disk, so that it survives a crash of the machine. Without
/// it, large files in memory (/dev/shm), or of a measurement, are written at the speed of a copy.
enum class Flush { yes, no };

/// A file that appears under its name only when it is complete and, with Flush::yes, on the disk:
/// until commit() it has a temporary name in the same folder. If it is destroyed before, no file is
/// left behind. What is there under the temporary name at first, of a process that was killed, is
/// removed; a link of this name is not followed.
class NewFile {
 public:
  /// Creates the temporary file, empty. Error(cannot_create).
  explicit NewFile(std::filesystem::path path, Flush flush = Flush::yes);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// For libraries that write the file by its name.
  const std::filesystem::path& temporary() const { return temporary_; }
  void write(const void* data, std::size_t bytes);  ///< appends; Error(io)
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Flushes and renames, replacing a file of this name. Error(io), also if another process has
  /// made a temporary file of the same name meanwhile.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  Flush flush_;
  Descriptor file_;
};

}  // namespace reelmesh
