#pragma once
#include "models/autoencoder/config.hpp"
#include "models/autoencoder/layers.hpp"

namespace reelmesh {

/// The decoder of Stable Diffusion's image autoencoder (diffusers' AutoencoderKL), on one image at
/// a time, whose rows may be spread.
class ImageDecoder {
 public:
  ImageDecoder(const Checkpoint& weights, const ImageAutoencoderConfig& config, DType dtype);

  /// latents: [1, row, column, channel] of the decoder's type, this part, divided by the scaling
  /// factor. → [1, row, column, 3] in −1…1 and beyond, compression() times the rows and columns.
  Tensor operator()(const ImagePart& part, const Tensor& latents) const;

  std::int64_t bytes() const;

 private:
  struct Up {
    std::vector<ResidualBlock> residuals;
    ops::Convolution upsample;
    bool enlarges = false;
  };

  Tensor attend(const ImagePart& image, const Tensor& x) const;

  ImageAutoencoderConfig config_;
  Numerics numerics_;
  ops::Linear post_quant_;  ///< out_features() 0: none
  ops::Convolution conv_in_, conv_out_;
  std::vector<ResidualBlock> mid_;  ///< attention stands between the two
  Affine attention_norm_, norm_out_;
  ops::Linear query_, key_value_, attention_out_;
  std::vector<Up> ups_;
};

}  // namespace reelmesh
