#pragma once
// Parts of job.h5.
#include "store/hdf5.hpp"
#include "store/job.hpp"

namespace reelmesh {

/// Writes a group /videos/FRAMESxHEIGHTxWIDTH for each size of clips: `video` [clip, frame, height,
/// width, channel], a virtual dataset over the files of the clips that record.lists(), in which
/// others read as 0; `clip` (their numbers), `prompt`, `seed` and `fps` of each; `time` of each
/// frame, if all have the same frame rate. Sizes with more than max_videos clips are left out.
void write_videos(hid_t file, const JobRecord& record);

/// Writes the group /provenance.
void write_provenance(hid_t file, const Provenance& from);

}  // namespace reelmesh
