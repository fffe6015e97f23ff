#pragma once
#include <cstdint>

namespace reelmesh {

/// Of a video, in pixels.
struct VideoSize {
  std::int64_t height = 0, width = 0, frames = 0;
  friend bool operator==(const VideoSize&, const VideoSize&) = default;
};

}  // namespace reelmesh
