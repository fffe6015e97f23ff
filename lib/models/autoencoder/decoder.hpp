#pragma once
// From Open-Sora's latents to a video: the autoencoder in time (release 1.2), then that of images.
#include <functional>

#include "models/autoencoder/image_decoder.hpp"
#include "models/autoencoder/temporal_decoder.hpp"
#include "models/common/decoder.hpp"

namespace reelmesh {

class OpenSoraDecoder final : public Decoder {
 public:
  /// Decodes on the device to which the weights are loaded.
  OpenSoraDecoder(const Checkpoint& weights, const OpenSoraVaeConfig& config, DType dtype);

  /// Boxes of layout.latents have whole groups of frames of the first autoencoder.
  Sharded pixels(const Sharded& latents, const DecodeLayout& layout) const override;

  /// The same before rounding to bytes: float32, in −1…1 and beyond.
  Sharded video(const Sharded& latents, const DecodeLayout& layout) const;

  std::int64_t bytes() const;

 private:
  using Store = std::function<Tensor(const Tensor& image)>;
  Sharded decode(const Sharded& latents, const DecodeLayout& layout, DType stored,
                 const Store& store) const;
  Sharded in_time(const Sharded& latents, const DecodeLayout& layout) const;

  OpenSoraVaeConfig config_;
  DType dtype_;
  Device device_;
  std::vector<float> scale_, shift_;  ///< of the latents' channels, before the first autoencoder
  std::optional<TemporalDecoder> temporal_;
  ImageDecoder image_;
};

}  // namespace reelmesh
