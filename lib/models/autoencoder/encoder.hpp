#pragma once
// Encodes a video to Open-Sora's latents: image encoder, then temporal encoder (release 1.2 only).
#include "models/autoencoder/image_encoder.hpp"
#include "models/autoencoder/temporal_encoder.hpp"
#include "models/common/gaussian_encoder.hpp"

namespace reelmesh {

/// As encode() of Open-Sora's VideoAutoencoderKL (1.0) and VideoAutoencoderPipeline (1.2). In 1.0
/// each frame has a posterior of its own; its samples are to be multiplied by the config's
/// latent_factor(). In 1.2 the temporal encoder gets groups of micro_frames frames, of which the
/// last may be shorter, with zeros before the first frame of a group for a multiple of
/// compression(); samples of its posterior are normalized by the checkpoint's shift and scale.
///
/// Each rank may have whole frames of the video in 1.0 and whole groups in 1.2, or a rectangle of
/// these.
///
/// Deviations from 1.2: the temporal encoder gets the mean of the image encoder's posterior, times
/// scaling_factor, where Open-Sora draws a sample; so the posterior of a video depends on its
/// pixels only. And height and width are whole latents: of 426 columns Open-Sora makes 53 latents
/// as well, but its convolutions see the two columns that are left over.
class OpenSoraEncoder final : public GaussianEncoder {
 public:
  /// Encodes on weights.device().
  OpenSoraEncoder(const Checkpoint& weights, const OpenSoraVaeConfig& config, DType dtype);

  std::int64_t latent_frames(std::int64_t frames) const override {
    return config_.latent_frames(frames);
  }
  Layout frames_of(const Layout& latents, std::int64_t frames) const override;

 private:
  std::int64_t group_frames() const { return temporal_ ? config_.temporal->micro_frames : 1; }
  void encode_part(std::span<const ImagePart> images, const Tensor& pixels,
                   const Consume& consume) const override;
  Tensor image_moments(std::span<const ImagePart> images, const Tensor& pixels,
                       std::int64_t frame) const;
  Tensor group_moments(std::span<const ImagePart> images, const Tensor& pixels, std::int64_t first,
                       std::int64_t count) const;

  OpenSoraVaeConfig config_;
  ImageEncoder image_;
  std::optional<TemporalEncoder> temporal_;
};

}  // namespace reelmesh
