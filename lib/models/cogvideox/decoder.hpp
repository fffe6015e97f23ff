#pragma once
// The decoder of CogVideoX's causal video autoencoder (diffusers' AutoencoderKLCogVideoX). Images
// are cut into rectangles over the ranks of a group: convolutions exchange halos, and group norms
// use exact sums over all ranks.
#include "models/cogvideox/config.hpp"
#include "models/common/causal.hpp"
#include "models/common/decoder.hpp"
#include "ops/norm.hpp"

namespace reelmesh {

/// (first, count) of the batches in which latent frames are decoded: 2 frames each; with an odd
/// number, the first batch has 3 (or the only frame). The batches affect the results, not only
/// memory, because group norms average over a batch.
std::vector<std::pair<std::int64_t, std::int64_t>> decode_batches(std::int64_t latent_frames);

/// Frames of video decoded from n latent frames: 4(n − 1) + 1 for odd n, 4n for even n.
std::int64_t decoded_frames(std::int64_t latent_frames);

class CogVideoXDecoder final : public Decoder {
 public:
  /// Decodes on weights.device().
  CogVideoXDecoder(const Checkpoint& weights, const CogVideoXVaeConfig& config, DType dtype);

  /// latents: the sampler's output, float32 [frame, channel, row, column], on the host or on the
  /// decoder's device; a partition in which frames and channels are not cut. Collective over the
  /// group; `consume` is not called on ranks without pixels.
  void decode(const Sharded& latents, const ConsumeFrames& consume) const;

  DecodedVideo pixels(const Sharded& latents, const DecodeLayout& layout) const override;

 private:
  // Spatial norm. conv_y (scale) and conv_b (shift) are 1×1: they act on latents before upsampling.
  struct Norm {
    Affine affine;
    ops::Linear scale, shift;
  };
  struct Residual {
    Norm norm1, norm2;
    CausalResidual block;
  };
  struct Up {
    std::vector<Residual> residuals;
    ops::Convolution upsample;
    bool upsamples = false, doubles_frames = false;
  };
  struct State;

  Norm load_norm(const Checkpoint& weights, const std::string& name, std::int64_t channels) const;
  Residual load_residual(const Checkpoint& weights, const std::string& name, std::int64_t in,
                         std::int64_t out);

  void apply(const Norm& norm, const State& state, const Tensor& x, Tensor& out) const;
  Tensor apply(const Residual& residual, State& state, const Tensor& x) const;
  Tensor enlarge(const Up& up, State& state, const Tensor& x) const;

  CogVideoXVaeConfig config_;
  DType dtype_;
  Device device_;
  std::size_t causal_count_ = 0;
  CausalConvolution conv_in_, conv_out_;
  std::vector<Residual> mid_;
  std::vector<Up> ups_;
  Norm norm_out_;
};

}  // namespace reelmesh
