#pragma once
// From Open-Sora's latents to a video: the autoencoder in time (release 1.2), then that of images.
#include <functional>

#include "models/autoencoder/image_decoder.hpp"
#include "models/autoencoder/temporal_decoder.hpp"

namespace reelmesh {

class OpenSoraDecoder {
 public:
  /// Decodes on the device to which the weights are loaded. speeds: of the ranks that decode, by
  /// which their parts are cut; empty: equal.
  OpenSoraDecoder(const Checkpoint& weights, const OpenSoraVaeConfig& config, DType dtype,
                  std::vector<double> speeds = {});

  /// Where latents [frame, channel, row, column] have to be for `pixels`: whole groups of frames of
  /// the first autoencoder, some or all of their rows, over `ranks` ranks of these speeds.
  static Layout layout(const OpenSoraVaeConfig& config, const Shape& latents, int ranks,
                       const std::vector<double>& speeds = {});

  /// latents: float32 [frame, channel, row, column] as the sampler leaves them, on the host or the
  /// device, in layout() over the group. frames: of the video, from which the latents' number
  /// follows (latent_frames). → uint8 [frame, row, column, 3] on the host, over the group, frames
  /// and rows cut. Collective over the group.
  Sharded pixels(const Sharded& latents, std::int64_t frames) const;

  /// The same before rounding to bytes: float32, in −1…1 and beyond.
  Sharded video(const Sharded& latents, std::int64_t frames) const;

  std::int64_t bytes() const;

 private:
  using Store = std::function<Tensor(const Tensor& image)>;
  Sharded decode(const Sharded& latents, std::int64_t frames, DType stored,
                 const Store& store) const;
  Sharded in_time(const Sharded& latents, std::int64_t frames) const;

  OpenSoraVaeConfig config_;
  DType dtype_;
  Device device_;
  std::vector<double> speeds_;
  std::vector<float> scale_, shift_;  ///< of the latents' channels, before the first autoencoder
  std::optional<TemporalDecoder> temporal_;
  ImageDecoder image_;
};

}  // namespace reelmesh
