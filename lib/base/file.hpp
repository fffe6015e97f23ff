#pragma once
// Files by their descriptors: opening, reading, locks, space and flushing.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "base/handle.hpp"

namespace reelmesh {

using Descriptor = Handle<int, &::close, -1>;

/// open(2) with O_CLOEXEC. Error(cannot_create) with O_CREAT, otherwise Error(io).
Descriptor open_file(const std::filesystem::path& path, int flags);

/// Writes `count` bytes at the offset `at` (pwrite). path: of the file, for messages. Error(io).
void write_at(int file, const std::filesystem::path& path, const void* bytes, std::size_t count,
              off_t at);
/// Closes a file that was written: some network file systems report only then that they are full.
/// Error(io).
void close_file(Descriptor file, const std::filesystem::path& path);

/// Makes a folder and those above it, unless they are there. Error(cannot_create).
void create_folders(const std::filesystem::path& folder);

/// Creates an empty file → open for writing. A file or link of this name is removed first, so that
/// nothing is written through a link. Error(cannot_create).
Descriptor create_empty(const std::filesystem::path& path);

/// Reads `count` bytes from the offset `at` (pread). → how many were read: fewer at the end of the
/// file, or after an error, which errno then says; at the end of the file errno is 0.
std::size_t read_at(int file, void* bytes, std::size_t count, off_t at);

/// Whether the open file is still the one of this name; links are not followed.
bool is_at(int file, const std::filesystem::path& path);

/// Reserves disk space for a file to grow by `bytes`, and for its holes: Error(io) if the disk is
/// too full.
void reserve_space(const std::filesystem::path& path, std::int64_t bytes);

/// Bytes of a file that are in the system's cache of files, so that they need not be read from the
/// disk; 0 if that is unknown.
std::int64_t cached_bytes(const std::filesystem::path& path);

/// Flushes a file or folder to disk (fsync). Error(io).
void flush_to_disk(const std::filesystem::path& path);

/// Removes a regular file, if there is one. Truncates it first, which frees the disk space even if
/// another process still has the file open. A link is neither followed nor removed.
void discard(const std::filesystem::path& path);

}  // namespace reelmesh
