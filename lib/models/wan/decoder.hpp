#pragma once
// The decoder of Wan's causal video autoencoders (diffusers' AutoencoderKLWan). Images are cut
// into rectangles over the ranks of a group: convolutions exchange halos, and attention in the
// middle uses whole frames. Frames are decoded in chunks, the first latent frame alone; what a
// frame decodes to does not depend on the chunks.
#include "models/common/decoder.hpp"
#include "models/wan/layers.hpp"

namespace reelmesh {

class WanDecoder final : public Decoder {
 public:
  /// Decodes on weights.device().
  WanDecoder(const Checkpoint& weights, const WanVaeConfig& config, DType dtype);

  /// latents: the sampler's output, float32 [frame, channel, row, column], on the host or on the
  /// decoder's device; a partition in which frames and channels are not cut. chunk: latent frames
  /// that are decoded together, after the first; memory is in proportion. Collective over the
  /// group; `consume` is not called on ranks without pixels.
  void decode(const Sharded& latents, const ConsumeFrames& consume, std::int64_t chunk = 1) const;

  DecodedVideo pixels(const Sharded& latents, const DecodeLayout& layout) const override;

 private:
  struct Up {
    std::vector<WanResidual> residuals;
    CausalConvolution doubling;  ///< of frames
    ops::Convolution enlarging;  ///< of rows and columns
    bool enlarges = false, doubles_frames = false;
  };

  Tensor run_up(const Up& up, ImagePart& image, Tensor x, bool first, EarlierFrames& earlier) const;
  Tensor unscaled(const Tensor& latents) const;

  WanVaeConfig config_;
  DType dtype_;
  Device device_;
  std::size_t causal_count_ = 0;
  ops::Linear post_quant_;
  CausalConvolution conv_in_, conv_out_;
  WanMiddle middle_;
  std::vector<Up> ups_;
  Tensor norm_out_;
};

}  // namespace reelmesh
