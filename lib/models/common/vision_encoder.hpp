#pragma once
// The interface of the encoder of an image whose embeddings a transformer attends to.
#include <array>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// How an image becomes the pixels that a vision encoder takes: its shortest edge is resized to
/// `edge` as Pillow does with BICUBIC, the middle square of `size` pixels is cut out, and values of
/// 0 to 255 become (value·factor − mean)/deviation of each channel.
struct VisionPixels {
  std::int64_t edge = 224, size = 224;
  double factor = 1.0 / 255;
  std::array<float, 3> mean{}, deviation{};
  Shape shape() const { return {1, 3, size, size}; }
};

class VisionEncoder {
 public:
  virtual ~VisionEncoder() = default;
  VisionEncoder() = default;
  VisionEncoder(const VisionEncoder&) = delete;
  VisionEncoder& operator=(const VisionEncoder&) = delete;

  /// pixels: float32 VisionPixels::shape() on the host → [row, channel] of the encoder's type, on
  /// the host.
  virtual Tensor embed(const Tensor& pixels) const = 0;
};

}  // namespace reelmesh
