#pragma once
// How a result appears under its name only when it is complete: it is written under a hidden
// temporary name in the same folder, brought to the disk, and renamed.
#include <cstdint>
#include <filesystem>

namespace reelmesh {

/// folder/name → folder/.name.partial
std::filesystem::path partial_path(const std::filesystem::path& path);

/// Makes an empty file, replacing what was there, to learn from the system why one cannot be made:
/// Error(cannot_create).
void create_empty(const std::filesystem::path& path);

/// Reserves disk space for a file to grow by `bytes`: Error(io) where the disk is too full.
void reserve_space(const std::filesystem::path& path, std::int64_t bytes);

/// Brings the file's bytes to the disk. Error(io).
void sync_file(const std::filesystem::path& path);

/// partial_path(path) becomes `path`, replacing what was there; the folder is brought to the disk.
/// Error(io).
void publish(const std::filesystem::path& path);

/// Removes a file that a failed attempt left, and its disk space even where a rank still holds it
/// open.
void discard(const std::filesystem::path& partial);

}  // namespace reelmesh
