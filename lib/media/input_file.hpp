#pragma once
// Opening of files that users bring.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/handle.hpp"

namespace reelmesh::media {

namespace detail {
inline void close_stream(std::FILE* stream) { std::fclose(stream); }
}  // namespace detail

/// A regular file, opened for reading.
struct InputFile {
  Handle<std::FILE*, detail::close_stream> stream;
  std::int64_t bytes = 0;
  std::string name;  ///< begins messages: "prompt.image: cat.png"
};

/// Throws Error(no_input) if the file is missing, Error(io) if it cannot be opened, and Error(data)
/// if it is not a regular file, empty, or longer than max_bytes.
InputFile open_input(const std::filesystem::path& file, const std::string& where,
                     std::int64_t max_bytes);

/// Throws Error(io) if reading has failed.
void check_read(const InputFile& file);

/// The next `count` bytes; fewer at the end of the file. Throws Error(io).
std::string read_bytes(const InputFile& file, std::size_t count);

}  // namespace reelmesh::media
