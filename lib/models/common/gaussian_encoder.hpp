#pragma once
// What the encoders of all families share: the part of the frames that a rank has, and the
// posterior that it makes of its moments.
#include <vector>

#include "models/common/encoder.hpp"
#include "models/common/image_part.hpp"

namespace reelmesh {

/// A pixel of 0 to 255 → x/255·2 − 1, as in the references.
inline float scaled_pixel(float x) { return 2.0F * (x / 255.0F) - 1.0F; }
/// uint8 → scaled_pixel(), computed in float32 and rounded to `dtype`; float32 →
/// rounded to it. Host.
Tensor scaled_pixels(const Tensor& pixels, DType dtype);

/// An encoder whose posterior is a normal distribution of each latent by itself, with the logarithm
/// of the variance clamped to −30…20 (diffusers' DiagonalGaussianDistribution).
class GaussianEncoder : public Encoder {
 public:
  /// Receives the latent frames [first, first + moments.shape(0)) of this rank's rectangle: mean
  /// and logarithm of the variance of the posterior, [frame, row, column, 2·channel] of the
  /// encoder's type, on its device.
  using Consume = std::function<void(std::int64_t first, const Tensor& moments)>;

  /// pixels, latents: as for sample(). Collective over the group; `consume` is not called on ranks
  /// without pixels.
  void encode(const Sharded& pixels, const Layout& latents, const Consume& consume) const;

  /// Latent frames of a video with `frames` frames.
  virtual std::int64_t latent_frames(std::int64_t frames) const = 0;

  Tensor sample(const Sharded& pixels, const Layout& latents, double scale,
                const DrawNoise& noise) const final;
  Posterior posterior(const Sharded& pixels, const Layout& latents) const final;

 protected:
  /// Latents are (z − shift)/scale of the posterior's z, by channel.
  struct Normalization {
    std::vector<float> shift, scale;
  };

  /// halvings: of height and width, from pixels to latents.
  GaussianEncoder(Device device, DType dtype, std::int64_t latent_channels, std::size_t halvings)
      : device_(device),
        dtype_(dtype),
        halvings_(halvings),
        normalization_{std::vector<float>(static_cast<std::size_t>(latent_channels), 0.0F),
                       std::vector<float>(static_cast<std::size_t>(latent_channels), 1.0F)} {}
  /// To be called in the constructor; otherwise latents are z.
  void normalize(Normalization by) { normalization_ = std::move(by); }

  /// images: this rank's part of the images at each resolution, from that of the pixels to that of
  /// the latents. pixels: [frame, row, column, 3], its part of the video.
  virtual void encode_part(std::span<const ImagePart> images, const Tensor& pixels,
                           const Consume& consume) const = 0;

  Device device_;
  DType dtype_;

 private:
  /// An array of this rank's box of the latents, on the host.
  Tensor latents_box(const Sharded& pixels, const Layout& latents) const;

  std::size_t halvings_;
  Normalization normalization_;
};

}  // namespace reelmesh
