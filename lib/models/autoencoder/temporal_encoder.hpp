#pragma once
#include "models/autoencoder/config.hpp"
#include "models/autoencoder/layers.hpp"

namespace reelmesh {

/// The encoder of Open-Sora 1.2's temporal autoencoder: from latents of single frames to those of
/// groups of frames. Causal within a group; groups are independent. Frames may be cut into
/// rectangles over ranks.
class TemporalEncoder {
 public:
  TemporalEncoder(const Checkpoint& weights, const TemporalAutoencoderConfig& config, DType dtype);

  /// x: this rank's part of the latents of one group, [frame, row, column, channel] of the
  /// encoder's type, with zeros before the first frame for a multiple of compression() frames. →
  /// [frame / compression(), row, column, 2·channel]: mean and logarithm of the variance of the
  /// posterior.
  Tensor operator()(const ImagePart& part, const Tensor& x) const;

 private:
  struct Level {
    std::vector<ResidualBlock> residuals;
    ops::Convolution halving;  ///< with stride 2 along the frames
    bool halves = false;
  };

  ResidualKind kind_;
  ops::Convolution conv_in_;
  std::vector<Level> levels_;
  std::vector<ResidualBlock> last_;
  Affine norm_out_;
  ops::Linear conv_out_, quant_;
};

}  // namespace reelmesh
