#include "pipeline/batch.hpp"

#include <algorithm>
#include <tuple>

namespace reelmesh::pipeline {
namespace {

bool alike(const Clip& a, const Clip& b) {
  const auto size = [](const Clip& clip) {
    return std::tuple(clip.size.height, clip.size.width, clip.size.frames, clip.record.fps,
                      clip.record.steps, clip.record.guidance);
  };
  return size(a) == size(b);
}

}  // namespace

std::vector<Batch> batches_of(std::vector<Clip> clips, int most) {
  std::vector<Batch> batches;
  for (Clip& clip : clips) {
    const auto room = std::ranges::find_if(batches, [&](const Batch& batch) {
      return std::ssize(batch) < most && alike(batch.front(), clip);
    });
    if (room != batches.end()) {
      room->push_back(std::move(clip));
    } else {
      batches.push_back({});
      batches.back().push_back(std::move(clip));
    }
  }
  return batches;
}

std::int64_t steps_of(const Batch& batch) { return std::ssize(batch) * batch.front().record.steps; }

}  // namespace reelmesh::pipeline
