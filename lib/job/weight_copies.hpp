#pragma once
// Weights that a job reads once from a file system, however many hosts it has.
#include <filesystem>

#include "comm/group.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// Copies the weight files of a model into `folder` on each host: on its disk, or in its memory
/// (/dev/shm). Each host reads an equal part of the bytes and sends it to all others. From now on
/// all ranks read the copies (use_copy). They have no names, so they are gone with the job, however
/// it ends. Error(unavailable) naming host and folder if there is too little room,
/// Error(cannot_create) if no file can be made there. Collective over the world.
void copy_weights_together(const comm::Group& world, const ModelPaths& paths,
                           const std::filesystem::path& folder);
/// The same if the ranks of this group share a host, for tests.
void copy_weights_together(const comm::Group& world, const comm::Group& host,
                           const ModelPaths& paths, const std::filesystem::path& folder);

}  // namespace reelmesh
