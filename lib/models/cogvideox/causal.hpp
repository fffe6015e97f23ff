#pragma once
// Layers that the encoder and the decoder of CogVideoX's autoencoder share, on this rank's part of
// the images. A clip is computed in batches of frames; convolutions go on from the frames before.
#include <functional>

#include "models/common/image_part.hpp"
#include "ops/convolution.hpp"
#include "ops/linear.hpp"

namespace reelmesh {

/// The last two input frames of each causal convolution, by its index, kept from one batch of a
/// clip to the next.
struct EarlierFrames {
  explicit EarlierFrames(std::size_t convolutions) : frames(convolutions) {}
  std::vector<ops::Image> frames;  ///< empty before the first batch
  bool last_batch = false;         ///< no frames need to be kept
};

/// 3×3×3 convolution over a frame and the two before it; at the start of a clip, frame 0 is
/// repeated (diffusers' CogVideoXCausalConv3d).
class CausalConvolution {
 public:
  CausalConvolution() = default;
  /// Loads <name>.conv.weight and <name>.conv.bias. index: of its frames in EarlierFrames.
  CausalConvolution(const Checkpoint& weights, const std::string& name, std::int64_t in,
                    std::int64_t out, DType dtype, std::size_t index);

  /// x: [frame, row, column, in] → [frame, row, column, out]. Replaces its frames in `earlier`,
  /// unless this is the last batch.
  Tensor operator()(const ImagePart& image, const Tensor& x, EarlierFrames& earlier) const;

 private:
  ops::Convolution convolution_;
  std::size_t index_ = 0;
};

/// x + conv2(norm2(conv1(norm1(x)))), x through a 1×1 convolution if channels change (diffusers'
/// CogVideoXResnetBlock3D).
class CausalResidual {
 public:
  /// A norm followed by silu; the result may share the memory of x.
  using Norm = std::function<Tensor(const Tensor& x)>;

  /// Loads <name>.conv1, .conv2 and, if channels change, .conv_shortcut. index: as for
  /// CausalConvolution; two are used, and it is advanced.
  CausalResidual(const Checkpoint& weights, const std::string& name, std::int64_t in,
                 std::int64_t out, DType dtype, std::size_t& index);

  /// norm1 must not write to x.
  Tensor operator()(const ImagePart& image, const Tensor& x, EarlierFrames& earlier,
                    const Norm& norm1, const Norm& norm2) const;

 private:
  CausalConvolution conv1_, conv2_;
  ops::Linear shortcut_;  ///< none if out_features() is 0
};

}  // namespace reelmesh
