#pragma once
// A small job for a checkpoint of tests/data.
#include <filesystem>

#include "job/job.hpp"
#include "support/data_folder.hpp"

namespace reelmesh::test {

/// So many clips of 13 frames of 112 × 48 with one prompt.
inline Job model_job(int clips = 1,
                     const std::filesystem::path& root = data_folder() / "cogvideox" / "rotary") {
  Job job;
  job.model.root = root;
  job.model.complete();
  job.clips.resize(static_cast<std::size_t>(clips));
  for (ClipRequest& request : job.clips) request.prompt = "rain";
  job.sample.height = 112;
  job.sample.width = 48;
  job.sample.frames = 13;
  return job;
}

}  // namespace reelmesh::test
