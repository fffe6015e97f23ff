#pragma once
// The interface of a model family's autoencoder to the pipeline, from latents to pixels.
#include "layout/clip_layout.hpp"
#include "layout/sharded.hpp"

namespace reelmesh {

struct DecodedVideo {
  Sharded pixels;      ///< uint8 [frame, row, column, 3] on the host
  bool finite = true;  ///< whether all values of this rank's box were finite before the rounding
};

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

}  // namespace reelmesh
