#pragma once
// Memory of Open-Sora's transformer while it denoises one clip, from the boxes of a rank.
#include "models/common/memory.hpp"
#include "models/opensora/config.hpp"

namespace reelmesh {

/// What one rank works on.
struct STDiTSizes {
  std::int64_t branches = 2;            ///< of guidance, of all clips that are denoised together
  std::int64_t text_tokens = 1;         ///< of a branch
  Shape frames{1, 1};                   ///< [frame, position] where frames are cut
  Shape positions{1, 1};                ///< [frame, position] where positions are cut
  std::int64_t positions_of_frame = 1;  ///< of all ranks
  std::int64_t shared_heads = 0;        ///< of whole frames, where the ranks of a frame share heads
  bool alone = true;                    ///< one rank holds everything: nothing moves
};

/// The largest moment of a step beside the weights; without what allocators leave unused.
std::int64_t stdit_working_bytes(const STDiTConfig& config, const STDiTSizes& sizes,
                                 const Precision& precision);

}  // namespace reelmesh
