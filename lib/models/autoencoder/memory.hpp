#pragma once
// Estimate of the working memory of Open-Sora's decoders on one rank.
#include "models/autoencoder/config.hpp"
#include "models/common/memory.hpp"

namespace reelmesh {

/// The share of one rank.
struct ImageShare {
  std::int64_t frames = 0;             ///< video frames that it decodes as images
  std::int64_t rows = 0, columns = 0;  ///< of latents, in each of these frames
  std::int64_t pixels_of_image = 0;    ///< latents of a whole frame, on all ranks
  std::int64_t group_pixels = 0;       ///< its latents of a frame during temporal decoding
};

/// Peak bytes of decoding one clip in addition to the weights, with the decoded video as uint8;
/// without unused memory that allocators keep.
std::int64_t open_sora_decode_bytes(const OpenSoraVaeConfig& config, const ImageShare& share,
                                    const Precision& precision);

}  // namespace reelmesh
