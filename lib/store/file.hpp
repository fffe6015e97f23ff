#pragma once
// Atomic creation of result files: a file is written under a hidden temporary name in the same
// folder, flushed to disk (fsync), and renamed when it is complete.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "base/handle.hpp"

namespace reelmesh {

using Descriptor = Handle<int, &::close, -1>;

/// open(2) with O_CLOEXEC. Error(cannot_create) with O_CREAT, otherwise Error(io).
Descriptor open_file(const std::filesystem::path& path, int flags);

/// Reads `count` bytes from the offset `at` (pread). → how many were read: fewer at the end of the
/// file, or after an error, which errno then says; at the end of the file errno is 0.
std::size_t read_at(int file, void* bytes, std::size_t count, off_t at);

/// folder/name → folder/.name.partial
std::filesystem::path partial_path(const std::filesystem::path& path);

/// Creates an empty file → open for writing. A file or link of this name is removed first, so that
/// nothing is written through a link. Called before other libraries create the file, since the
/// Error(cannot_create) has the system's reason.
Descriptor create_empty(const std::filesystem::path& path);

/// Whether POSIX locks (fcntl) work on this file, which exists; not on every network file system.
/// Error(io).
bool can_lock(const std::filesystem::path& path);

/// Reserves disk space for a file to grow by `bytes`: Error(io) if the disk is too full.
void reserve_space(const std::filesystem::path& path, std::int64_t bytes);

/// Flushes the file to disk (fsync). Error(io).
void sync_file(const std::filesystem::path& path);

/// Renames partial_path(path) to `path`, replacing an existing file, and flushes the folder to
/// disk. Error(io).
void publish(const std::filesystem::path& path);

/// Removes the file that a failed attempt left. Truncates it first, which frees the disk space even
/// if a rank still has the file open. A link is neither followed nor removed.
void discard(const std::filesystem::path& partial);

}  // namespace reelmesh
