#pragma once
#include <span>

#include "models/autoencoder/config.hpp"
#include "models/autoencoder/layers.hpp"

namespace reelmesh {

/// The encoder of Stable Diffusion's image autoencoder (diffusers' AutoencoderKL), for one image at
/// a time, which may be cut into rectangles over ranks.
class ImageEncoder {
 public:
  ImageEncoder(const Checkpoint& weights, const ImageAutoencoderConfig& config, DType dtype);

  /// images: this rank's part at each resolution, from that of the pixels to that of the latents.
  /// pixels: [1, row, column, 3] of the encoder's type, in −1…1. → [1, row, column, 2·channel] with
  /// 1/compression() of the rows and columns: mean and logarithm of the variance of the posterior,
  /// not scaled.
  Tensor operator()(std::span<const ImagePart> images, const Tensor& pixels) const;

 private:
  struct Down {
    std::vector<ResidualBlock> residuals;
    ops::Convolution downsample;
    bool downsamples = false;
  };

  ResidualKind kind_;
  ops::Convolution conv_in_, conv_out_;
  std::vector<Down> downs_;
  MiddleBlock middle_;
  Affine norm_out_;
  ops::Linear quant_;  ///< none if out_features() is 0
};

}  // namespace reelmesh
