#pragma once
// The decoder of CogVideoX's causal video autoencoder (diffusers' AutoencoderKLCogVideoX), on
// images that are spread over a group as rectangles: halos for convolutions, exact sums for group
// norms.
#include <functional>

#include "models/cogvideox/config.hpp"
#include "models/common/decoder.hpp"
#include "models/common/image_part.hpp"
#include "ops/convolution.hpp"
#include "ops/norm.hpp"

namespace reelmesh {

/// Frames of latents that are decoded together. It decides the values, not only the memory: group
/// norms are taken over a batch. The first batch takes what does not divide.
std::vector<std::pair<std::int64_t, std::int64_t>> decode_batches(std::int64_t latent_frames);

/// Frames of video that so many frames of latents decode to: 4(n − 1) + 1 for odd n, 4n for even n.
std::int64_t decoded_frames(std::int64_t latent_frames);

class CogVideoXDecoder final : public Decoder {
 public:
  /// Decodes on the device to which the weights are loaded.
  CogVideoXDecoder(const Checkpoint& weights, const CogVideoXVaeConfig& config, DType dtype);

  /// Receives the frames [first, first + frames.shape(0)) of this rank's rectangle: [frame, row,
  /// column, 3] of the decoder's type, in −1…1 and beyond.
  using Consume = std::function<void(std::int64_t first, const Tensor& frames)>;

  /// latents: float32 [frame, channel, row, column] as the sampler leaves them, on the host or the
  /// device, a partition with frames and channels whole. Collective over the group; a rank without
  /// pixels gets no frames.
  void decode(const Sharded& latents, const Consume& consume) const;

  Sharded pixels(const Sharded& latents, const DecodeLayout& layout) const override;

  std::int64_t bytes() const;

 private:
  // conv_y and conv_b of a spatial norm act on the latents before they are enlarged.
  struct Norm {
    Affine affine;
    ops::Linear scale, shift;
  };
  // Causal convolutions have an index, under which a decode keeps the frames before.
  struct Causal {
    ops::Convolution convolution;
    std::size_t index = 0;
  };
  struct Residual {
    Norm norm1, norm2;
    Causal conv1, conv2;
    ops::Linear shortcut;  ///< out_features() 0: none
  };
  struct Up {
    std::vector<Residual> residuals;
    ops::Convolution upsample;
    bool enlarges = false, doubles_frames = false;
  };
  struct State;

  Norm load_norm(const Checkpoint& weights, const std::string& name, std::int64_t channels) const;
  Causal load_causal(const Checkpoint& weights, const std::string& name, std::int64_t in,
                     std::int64_t out);
  Residual load_residual(const Checkpoint& weights, const std::string& name, std::int64_t in,
                         std::int64_t out);

  Tensor apply(const Causal& causal, State& state, const Tensor& x) const;
  void apply(const Norm& norm, const State& state, const Tensor& x, Tensor& out) const;
  Tensor apply(const Residual& residual, State& state, const Tensor& x) const;
  Tensor enlarge(const Up& up, State& state, const Tensor& x) const;

  CogVideoXVaeConfig config_;
  DType dtype_;
  Device device_;
  std::size_t causal_count_ = 0;
  Causal conv_in_, conv_out_;
  std::vector<Residual> mid_;
  std::vector<Up> ups_;
  Norm norm_out_;
};

}  // namespace reelmesh
