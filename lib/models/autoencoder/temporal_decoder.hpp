#pragma once
#include "models/autoencoder/config.hpp"
#include "models/autoencoder/layers.hpp"

namespace reelmesh {

/// The decoder of Open-Sora 1.2's temporal autoencoder: from latents of groups of frames to latents
/// of single frames. Causal within a group; groups are independent. Frames may be cut into
/// rectangles over ranks.
class TemporalDecoder {
 public:
  TemporalDecoder(const Checkpoint& weights, const TemporalAutoencoderConfig& config, DType dtype);

  /// latents: this rank's part of one group, [latent frame, row, column, channel] of the decoder's
  /// type. They decode to compression() times as many frames. → the last `frames` of these, [frame,
  /// row, column, channel].
  Tensor operator()(const ImagePart& part, const Tensor& latents, std::int64_t frames) const;

 private:
  struct Level {
    std::vector<ResidualBlock> residuals;
    ops::Convolution doubling;  ///< to twice the channels, which become twice the frames
    bool doubles = false;
  };

  ResidualKind kind_;
  ops::Linear post_quant_;
  ops::Convolution conv_in_, conv_out_;
  std::vector<ResidualBlock> first_;
  std::vector<Level> levels_;
  Affine norm_out_;
};

}  // namespace reelmesh
