#pragma once
// The encoder of CogVideoX's causal video autoencoder (diffusers' AutoencoderKLCogVideoX without
// tiling and slicing), cut like the decoder.
#include "models/cogvideox/config.hpp"
#include "models/common/causal.hpp"
#include "models/common/gaussian_encoder.hpp"

namespace reelmesh {

/// (first, count) of the batches in which frames are encoded: 8 frames each, the first with the
/// remainder of the division by 8. As in decoding, the batches affect the results.
std::vector<std::pair<std::int64_t, std::int64_t>> encode_batches(std::int64_t frames);

/// Latent frames of n frames of video: n/4 of each batch, rounded up.
std::int64_t encoded_frames(std::int64_t frames);

class CogVideoXEncoder final : public GaussianEncoder {
 public:
  /// Encodes on weights.device().
  CogVideoXEncoder(const Checkpoint& weights, const CogVideoXVaeConfig& config, DType dtype);

  std::int64_t latent_frames(std::int64_t frames) const override { return encoded_frames(frames); }

 private:
  struct Residual {
    Affine norm1, norm2;
    CausalResidual block;
  };
  struct Down {
    std::vector<Residual> residuals;
    ops::Convolution downsample;
    bool downsamples = false, halves_frames = false;
  };

  void encode_part(std::span<const ImagePart> images, const Tensor& pixels,
                   const Consume& consume) const override;
  Residual load_residual(const Checkpoint& weights, const std::string& name, std::int64_t in,
                         std::int64_t out);
  Tensor apply(const Residual& residual, const ImagePart& image, const Tensor& x,
               EarlierFrames& earlier) const;

  CogVideoXVaeConfig config_;
  std::size_t causal_count_ = 0;
  CausalConvolution conv_in_, conv_out_;
  std::vector<Down> downs_;
  std::vector<Residual> mid_;
  Affine norm_out_;
};

}  // namespace reelmesh
