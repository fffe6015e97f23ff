#pragma once
// The interface of a model family's autoencoder to the pipeline, from pixels to latents.
#include <functional>
#include <span>

#include "layout/sharded.hpp"

namespace reelmesh {

/// The encoder of an autoencoder with its weights, on one device.
class Encoder {
 public:
  /// Fills the span with this rank's box of standard normal noise, rounded to the encoder's type:
  /// float32 [frame, channel, row, column] of the latents, on the host. Empty: zeros, so that a
  /// sample is the mean.
  using DrawNoise = std::function<void(std::span<float> box)>;

  virtual ~Encoder() = default;
  Encoder() = default;
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  /// The layout of the `frames` frames of a video over the ranks that encode them to latents of
  /// this layout: both [frame, row, column], rows and columns counted in latents. Error(internal)
  /// if latents are cut between frames that are encoded together.
  virtual Layout frames_of(const Layout& latents, std::int64_t frames) const {
    return latents.without_axis(0).with_axis(0, frames);
  }

  /// pixels: RGB on the host, uint8 or float32 from −1 to 1, [frame, row, column, 3], distributed
  /// as frames_of() says; latents: their layout [latent frame, row, column], a partition. → this
  /// rank's box of a sample of the posterior, mean + deviation · noise, times `scale`: float32
  /// [frame, channel, row, column] on the host, with values of the encoder's type (each operation
  /// is rounded to it). Collective over the group; ranks may have empty boxes.
  virtual Tensor sample(const Sharded& pixels, const Layout& latents, double scale,
                        const DrawNoise& noise) const = 0;

  /// Mean and deviation of the posterior, float32 [frame, channel, row, column] on the host: this
  /// rank's box. Otherwise as sample(). Only of families that can be trained.
  struct Posterior {
    Tensor mean, deviation;
  };
  virtual Posterior posterior(const Sharded& /*pixels*/, const Layout& /*latents*/) const {
    fail(Status::internal, "the posterior of an encoder that has none");
  }
};

}  // namespace reelmesh
