#pragma once
// The configurations of CLIP's vision encoder. Sources: image_encoder/config.json as written by
// transformers' CLIPVisionModel, image_processor/preprocessor_config.json by CLIPImageProcessor;
// defaults are those of their constructors.
#include "models/common/vision_encoder.hpp"
#include "weights/config.hpp"

namespace reelmesh {

struct ClipVisionConfig {
  std::int64_t channels = 768;
  std::int64_t hidden_channels = 3072;  ///< of the feed-forward layers
  std::int64_t layers = 12, heads = 12;
  std::int64_t image_size = 224, patch_size = 32;  ///< pixels
  double norm_eps = 1e-5;

  std::int64_t patches() const {
    const std::int64_t side = image_size / patch_size;
    return side * side;
  }
  /// Of the output: a class token, then the patches.
  std::int64_t rows() const { return 1 + patches(); }

  /// Throws Error(data) for unsupported configurations.
  static ClipVisionConfig read(const Config& config);
  bool operator==(const ClipVisionConfig&) const = default;
};

/// Reads preprocessor_config.json. Throws Error(data) for unsupported configurations.
VisionPixels read_vision_pixels(const Config& config);

}  // namespace reelmesh
