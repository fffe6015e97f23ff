#pragma once
// The interface of a model family's autoencoder to the pipeline, from latents to pixels.
#include <cstdint>
#include <functional>

#include "layout/clip_layout.hpp"
#include "layout/sharded.hpp"

namespace reelmesh {

struct DecodedVideo {
  Sharded pixels;      ///< uint8 [frame, row, column, 3] on the host
  bool finite = true;  ///< whether all values of this rank's box were finite before the rounding
};

/// Receives the frames [first, first + frames.shape(0)) of this rank's rectangle: [frame, row,
/// column, 3] of the decoder's type, nominally in −1…1 (not clamped).
using ConsumeFrames = std::function<void(std::int64_t first, const Tensor& frames)>;

/// The decoder of an autoencoder with its weights, on one device.
class Decoder {
 public:
  virtual ~Decoder() = default;
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// latents: the sampler's output, float32 [frame, channel, row, column], on the host or the
  /// decoder's device, distributed over the group as layout.latents says (all channels on each
  /// rank). → the video, distributed as layout.images says. Collective over the group; ranks may
  /// have empty boxes.
  virtual DecodedVideo pixels(const Sharded& latents, const DecodeLayout& layout) const = 0;
};

/// pixels() of a decoder on `device` that passes its frames on: decode(consume).
DecodedVideo collect_pixels(const Sharded& latents, const DecodeLayout& layout,
                            std::int64_t pixels_per_latent, Device device,
                            const std::function<void(const ConsumeFrames&)>& decode);

}  // namespace reelmesh
