#pragma once
// The encoder of CogVideoX's causal video autoencoder (diffusers' AutoencoderKLCogVideoX without
// tiling and slicing), cut like the decoder.
#include "models/cogvideox/causal.hpp"
#include "models/cogvideox/config.hpp"
#include "models/common/encoder.hpp"

namespace reelmesh {

/// (first, count) of the batches in which frames are encoded: 8 frames each, the first with the
/// remainder of the division by 8. As in decoding, the batches affect the results.
std::vector<std::pair<std::int64_t, std::int64_t>> encode_batches(std::int64_t frames);

/// Latent frames of n frames of video: n/4 of each batch, rounded up.
std::int64_t encoded_frames(std::int64_t frames);

class CogVideoXEncoder final : public Encoder {
 public:
  /// Encodes on weights.device().
  CogVideoXEncoder(const Checkpoint& weights, const CogVideoXVaeConfig& config, DType dtype);

  /// Receives the latent frames [first, first + moments.shape(0)) of this rank's rectangle: mean
  /// and logarithm of the variance of the posterior, [frame, row, column, 2·channel] of the
  /// encoder's type, on its device.
  using Consume = std::function<void(std::int64_t first, const Tensor& moments)>;

  /// pixels, latents: as for sample(). Collective over the group; `consume` is not called on ranks
  /// without pixels.
  void encode(const Sharded& pixels, const Layout& latents, const Consume& consume) const;

  Tensor sample(const Sharded& pixels, const Layout& latents, double scale,
                const DrawNoise& noise) const override;
  Posterior posterior(const Sharded& pixels, const Layout& latents) const override;

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

  /// An array of this rank's box of the latents, on the host.
  Tensor latents_box(const Sharded& pixels, const Layout& latents) const;
  Residual load_residual(const Checkpoint& weights, const std::string& name, std::int64_t in,
                         std::int64_t out);
  Tensor apply(const Residual& residual, const ImagePart& image, const Tensor& x,
               EarlierFrames& earlier) const;

  CogVideoXVaeConfig config_;
  DType dtype_;
  Device device_;
  std::size_t causal_count_ = 0;
  CausalConvolution conv_in_, conv_out_;
  std::vector<Down> downs_;
  std::vector<Residual> mid_;
  Affine norm_out_;
};

}  // namespace reelmesh
