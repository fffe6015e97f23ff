#pragma once
// Memory of Open-Sora's decoders while they work, from the share of a rank.
#include "models/autoencoder/config.hpp"
#include "models/common/memory.hpp"

namespace reelmesh {

/// Latents that one rank decodes.
struct ImageShare {
  std::int64_t frames = 0;             ///< of the video
  std::int64_t rows = 0, columns = 0;  ///< of latents, of each frame
  std::int64_t pixels_of_image = 0;    ///< latents of a whole frame: all ranks
  std::int64_t group_pixels = 0;       ///< latents of a frame while groups of frames are decoded
};

/// Peak bytes of decoding one clip beside the weights, with the decoded video as
/// uint8; without what allocators leave unused.
std::int64_t open_sora_decode_bytes(const OpenSoraVaeConfig& config, const ImageShare& share,
                                    const Precision& precision);

}  // namespace reelmesh
