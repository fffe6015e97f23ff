#pragma once
// Memory of CogVideoX's transformer and decoder while they work on one clip, from the share of a
// rank. Both figures are the largest moment beside the weights, without what allocators leave
// unused.
#include "models/cogvideox/config.hpp"
#include "models/common/memory.hpp"

namespace reelmesh {

/// What one rank works on.
struct CogVideoXSizes {
  std::int64_t batch = 1;         ///< branches of guidance that its ranks work on
  std::int64_t text_tokens = 0;   ///< that it holds
  std::int64_t video_tokens = 0;  ///< that it holds
  std::int64_t row_tokens = 0;    ///< that it attends for
  std::int64_t heads = 0;         ///< for which it attends
  std::int64_t all_tokens = 0;    ///< of all ranks
  bool alone = true;              ///< keys need not travel
  bool shares_heads = false;      ///< queries travel
};
std::int64_t cogvideox_working_bytes(const CogVideoXConfig& config, const CogVideoXSizes& sizes,
                                     const Precision& precision);

/// latents: [frame, row, column] that a rank decodes. Includes the decoded video, as uint8.
std::int64_t cogvideox_decode_bytes(const CogVideoXVaeConfig& config, const Shape& latents,
                                    const Precision& precision);

}  // namespace reelmesh
