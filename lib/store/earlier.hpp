#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>

namespace reelmesh {

/// Moves the clip files in folder/clips and its folders of clips, except those of clips that are to
/// `stay` and are at their places, to folder/earlier. There 000007.h5 has the same name, or the
/// first of 000007.1.h5, 000007.2.h5, … that is free. Other names, folders, and what links lead to
/// are left alone. Called on one rank. Error(cannot_create) if folder/earlier is no folder or
/// cannot be made, Error(io) if a file cannot be moved. → the number of files.
std::size_t set_clips_aside(const std::filesystem::path& folder,
                            const std::function<bool(int clip)>& stay);

/// Moves clip files that are in folder/clips, where earlier versions wrote those of all clips, to
/// their places (clip_path), unless something is there. Called on one rank, before clips are looked
/// for. Error(cannot_create) if a folder cannot be made, Error(io) if a file cannot be moved.
void move_clips_to_folders(const std::filesystem::path& folder);

}  // namespace reelmesh
