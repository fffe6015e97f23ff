#pragma once
// Atomic creation of result files: a file is written under a hidden temporary name in the same
// folder, flushed to disk (fsync), and renamed when it is complete.
#include <unistd.h>

#include <cstdint>
#include <filesystem>

#include "base/handle.hpp"

namespace reelmesh {

using Descriptor = Handle<int, &::close, -1>;

/// open(2) with O_CLOEXEC. Error(cannot_create) with O_CREAT, otherwise Error(io).
Descriptor open_file(const std::filesystem::path& path, int flags);

/// folder/name → folder/.name.partial
std::filesystem::path partial_path(const std::filesystem::path& path);

/// Creates an empty file, replacing an existing one. Called before other libraries create the file,
/// since the Error(cannot_create) has the system's reason.
void create_empty(const std::filesystem::path& path);

/// Reserves disk space for a file to grow by `bytes`: Error(io) if the disk is too full.
void reserve_space(const std::filesystem::path& path, std::int64_t bytes);

/// Flushes the file to disk (fsync). Error(io).
void sync_file(const std::filesystem::path& path);

/// Renames partial_path(path) to `path`, replacing an existing file, and flushes the folder to
/// disk. Error(io).
void publish(const std::filesystem::path& path);

/// Removes the file that a failed attempt left. Truncates it first, which frees the disk space even
/// if a rank still has the file open.
void discard(const std::filesystem::path& partial);

}  // namespace reelmesh
