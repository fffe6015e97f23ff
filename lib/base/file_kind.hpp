#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace reelmesh {

/// Bytes from the beginning of a file that tell what it is.
inline constexpr std::size_t file_kind_bytes = 512;

/// Types of files that programs treat in ways of their own.
enum class FileKind { png, jpeg, webp, gif, bmp, tiff, avif, torch, other };
/// By the first bytes, whatever the file's name is. torch: a pickle, or a zip archive of one.
FileKind file_kind(std::string_view first_bytes);

/// For messages about a file that is not of the type that was expected: what it is instead, by its
/// first bytes, and what to do: " (it is a Git LFS pointer: …)". Empty if that is not known.
std::string what_it_is(std::string_view first_bytes);

}  // namespace reelmesh
