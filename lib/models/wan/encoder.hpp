#pragma once
// The encoder of Wan's causal video autoencoders (diffusers' AutoencoderKLWan), cut like the
// decoder: frame 0, then chunks of 4 frames, which do not affect the results.
#include "models/common/gaussian_encoder.hpp"
#include "models/wan/layers.hpp"

namespace reelmesh {

class WanEncoder final : public GaussianEncoder {
 public:
  /// Encodes on weights.device(), to latents as the transformer takes them: (z − mean)/std.
  WanEncoder(const Checkpoint& weights, const WanVaeConfig& config, DType dtype);

  std::int64_t latent_frames(std::int64_t frames) const override {
    return WanVaeConfig::latent_frames(frames);
  }

 private:
  struct Down {
    std::vector<WanResidual> residuals;
    ops::Convolution reducing;  ///< of rows and columns
    CausalConvolution halving;  ///< of frames
    bool reduces = false, halves_frames = false;
    ops::Folding shortcut;
  };

  Tensor run_down(const Down& down, std::span<const ImagePart>::iterator& image, Tensor x,
                  bool first, EarlierFrames& earlier) const;
  void encode_part(std::span<const ImagePart> images, const Tensor& pixels,
                   const Consume& consume) const override;

  WanVaeConfig config_;
  std::size_t causal_count_ = 0;
  CausalConvolution conv_in_, conv_out_;
  std::vector<Down> downs_;
  WanMiddle middle_;
  Tensor norm_out_;
  ops::Linear quant_;
};

}  // namespace reelmesh
