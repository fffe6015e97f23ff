#pragma once
// Estimates of the working memory of CogVideoX's transformer, decoder and encoder on one rank: peak
// bytes in addition to the weights, without unused memory that allocators keep.
#include "models/cogvideox/config.hpp"
#include "models/common/memory.hpp"

namespace reelmesh {

/// The share of one rank in a call of the transformer.
struct CogVideoXSizes {
  std::int64_t batch = 1;         ///< guidance branches that it computes, of all clips
  std::int64_t text_tokens = 0;   ///< that the rank holds
  std::int64_t video_tokens = 0;  ///< that the rank holds
  std::int64_t row_tokens = 0;    ///< whose queries it computes attention for
  std::int64_t heads = 0;         ///< for which it computes attention
  std::int64_t all_tokens = 0;    ///< text and video, on all ranks
  bool single_rank = true;        ///< keys are not exchanged
  bool uses_ulysses = false;      ///< Ulysses: queries are exchanged for heads
};
/// Peak of one call of the transformer.
std::int64_t cogvideox_working_bytes(const CogVideoXConfig& config, const CogVideoXSizes& sizes,
                                     const Precision& precision);

/// Peak of decoding. latents: extents [frame, row, column] of the rank's box. Includes the decoded
/// video as uint8.
std::int64_t cogvideox_decode_bytes(const CogVideoXVaeConfig& config, const Shape& latents,
                                    const Precision& precision);

/// Peak of encoding a clip of `frames` frames. latents: extents [frame, row, column] of the rank's
/// box. Includes its pixels as uint8, and the sample.
std::int64_t cogvideox_encode_bytes(const CogVideoXVaeConfig& config, const Shape& latents,
                                    std::int64_t frames, const Precision& precision);

}  // namespace reelmesh
