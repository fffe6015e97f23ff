#pragma once
#include <cstdint>

namespace reelmesh {

/// Size of a video; height and width in pixels.
struct VideoSize {
  std::int64_t height = 0, width = 0, frames = 0;
  friend bool operator==(const VideoSize&, const VideoSize&) = default;
};

}  // namespace reelmesh
