#pragma once
#include "models/autoencoder/config.hpp"
#include "models/autoencoder/layers.hpp"

namespace reelmesh {

/// The decoder of Stable Diffusion's image autoencoder (diffusers' AutoencoderKL), for one image at
/// a time, which may be cut into rectangles over ranks.
class ImageDecoder {
 public:
  ImageDecoder(const Checkpoint& weights, const ImageAutoencoderConfig& config, DType dtype);

  /// latents: this rank's part [1, row, column, channel] of the decoder's type, already divided by
  /// the scaling factor. → [1, row, column, 3] with compression() times the rows and columns,
  /// nominally in −1…1 (not clamped).
  Tensor operator()(const ImagePart& part, const Tensor& latents) const;

 private:
  struct Up {
    std::vector<ResidualBlock> residuals;
    ops::Convolution upsample;
    bool upsamples = false;
  };

  ResidualKind kind_;
  ops::Linear post_quant_;  ///< none if out_features() is 0
  ops::Convolution conv_in_, conv_out_;
  MiddleBlock middle_;
  std::vector<Up> ups_;
  Affine norm_out_;
};

}  // namespace reelmesh
