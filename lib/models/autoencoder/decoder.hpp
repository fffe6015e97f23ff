#pragma once
// Decodes Open-Sora's latents to a video: temporal decoder (release 1.2 only), then image decoder.
#include <functional>

#include "models/autoencoder/image_decoder.hpp"
#include "models/autoencoder/temporal_decoder.hpp"
#include "models/common/decoder.hpp"

namespace reelmesh {

class OpenSoraDecoder final : public Decoder {
 public:
  /// Decodes on weights.device().
  OpenSoraDecoder(const Checkpoint& weights, const OpenSoraVaeConfig& config, DType dtype);

  /// With a temporal decoder, boxes of layout.latents have whole groups of micro_latents() frames.
  DecodedVideo pixels(const Sharded& latents, const DecodeLayout& layout) const override;

  /// The same before conversion to bytes: float32, nominally in −1…1 (not clamped).
  Sharded video(const Sharded& latents, const DecodeLayout& layout) const;

 private:
  using Store = std::function<Tensor(const Tensor& image)>;
  Sharded decode(const Sharded& latents, const DecodeLayout& layout, DType stored,
                 const Store& store) const;
  Sharded decode_temporal(const Sharded& latents, const DecodeLayout& layout) const;

  OpenSoraVaeConfig config_;
  DType dtype_;
  Device device_;
  std::vector<float> scale_, shift_;  ///< per latent channel, before the temporal decoder
  std::optional<TemporalDecoder> temporal_;
  ImageDecoder image_;
};

}  // namespace reelmesh
