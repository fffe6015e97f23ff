#include "pipeline/failures.hpp"

#include <algorithm>
#include <sstream>

#include "base/error.hpp"
#include "base/log.hpp"

namespace reelmesh::pipeline {

void Failures::add(int clip, std::string_view where) {
  const std::string reason = fmt::format("NaN or infinite values in {}", where);
  require(!strict_, Status::data, "clip {}: {} (output.strict ends the job)", clip, reason);
  log::say_here(log::Level::error,
                fmt::format("clip {}: {}; it is not written, other clips go on", clip, reason));
  found_.push_back({clip, fmt::format("{} on rank {}", reason, log::rank())});
}

std::vector<ClipFailure> Failures::of_all(const comm::Group& world) const {
  std::string own;  // a line each
  for (const ClipFailure& failure : found_) {
    own += fmt::format("{} {}\n", failure.clip, failure.reason);
  }
  std::vector<ClipFailure> all;
  for (const std::string& block : world.all_gather(own)) {
    std::istringstream lines(block);
    ClipFailure failure;
    while (lines >> failure.clip >> std::ws && std::getline(lines, failure.reason)) {
      all.push_back(failure);
    }
  }
  std::ranges::sort(all, {}, &ClipFailure::clip);
  return all;
}

}  // namespace reelmesh::pipeline
