#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>

namespace reelmesh {

/// Moves the clip files in folder/clips, except those of clips that are to `stay`, to
/// folder/earlier. There 000007.h5 has the same name, or the first of 000007.1.h5, 000007.2.h5, …
/// that is free. Other names, folders, and what links lead to are left alone. Called on one rank.
/// Error(cannot_create) if folder/earlier is no folder or cannot be made, Error(io) if a file
/// cannot be moved. → the number of files.
std::size_t set_clips_aside(const std::filesystem::path& folder,
                            const std::function<bool(int clip)>& stay);

}  // namespace reelmesh
