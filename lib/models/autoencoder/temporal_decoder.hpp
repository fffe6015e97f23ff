#pragma once
#include "models/autoencoder/config.hpp"
#include "models/autoencoder/layers.hpp"

namespace reelmesh {

/// The decoder of Open-Sora 1.2's autoencoder in time: from latents of groups of frames to latents
/// of single frames. Causal, each group by itself; images may be spread.
class TemporalDecoder {
 public:
  TemporalDecoder(const Checkpoint& weights, const TemporalAutoencoderConfig& config, DType dtype);

  /// latents: [latent frame, row, column, channel] of the decoder's type, this part → [frame, row,
  /// column, channel]: the last `frames` of compression() times as many.
  Tensor operator()(const ImagePart& part, const Tensor& latents, std::int64_t frames) const;

  std::int64_t bytes() const;

 private:
  struct Level {
    std::vector<ResidualBlock> residuals;
    ops::Convolution doubling;  ///< twice the channels, which become twice the frames
    bool doubles = false;
  };

  TemporalAutoencoderConfig config_;
  ops::Linear post_quant_;
  ops::Convolution conv_in_, conv_out_;
  std::vector<ResidualBlock> first_;
  std::vector<Level> levels_;
  Affine norm_out_;
};

}  // namespace reelmesh
