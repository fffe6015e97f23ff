#include "pipeline/failures.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/group_values.hpp"

namespace reelmesh::pipeline {

void Failures::add(int clip, std::string_view where) {
  const std::string reason = fmt::format("NaN or infinite values in {}", where);
  require(!strict_, Status::data, "clip {}: {} (output.strict ends the job)", clip, reason);
  log::say_here(log::Level::error,
                fmt::format("clip {}: {}; it is not written, other clips go on", clip, reason));
  found_.push_back({clip, fmt::format("{} on rank {}", reason, number_of(log::rank()))});
}

std::vector<ClipFailure> Failures::of_all(const comm::Group& world) const {
  std::vector<int> own_clips;
  std::vector<std::string> own_reasons;
  for (const ClipFailure& failure : found_) {
    own_clips.push_back(failure.clip);
    own_reasons.push_back(failure.reason);
  }
  const std::vector<std::vector<int>> clips = comm::all_gather_values(world, own_clips);
  const std::vector<std::vector<std::string>> reasons = comm::all_gather_texts(world, own_reasons);
  std::vector<ClipFailure> all;
  for (std::size_t r = 0; r < clips.size(); ++r) {
    for (std::size_t i = 0; i < clips[r].size(); ++i) {
      all.push_back({clips[r][i], reasons[r].at(i)});
    }
  }
  std::ranges::sort(all, {}, &ClipFailure::clip);
  return all;
}

}  // namespace reelmesh::pipeline
