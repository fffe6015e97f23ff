#pragma once
// Estimate of the working memory of Open-Sora's transformer on one rank.
#include "models/common/memory.hpp"
#include "models/opensora/config.hpp"

namespace reelmesh {

/// The share of one rank. A position is the index of a token in its frame.
struct STDiTSizes {
  std::int64_t branches = 2;            ///< guidance branches of all clips of the batch
  std::int64_t text_tokens = 1;         ///< per branch
  Shape frames{1, 1};                   ///< its box [frame, position] while frames are cut
  Shape positions{1, 1};                ///< its box [frame, position] while positions are cut
  std::int64_t positions_of_frame = 1;  ///< positions of a whole frame
  std::int64_t shared_heads = 0;        ///< its heads if ranks share frames, else 0
  bool single_rank = true;              ///< nothing is exchanged
};

/// Peak bytes of a step in addition to the weights, without unused memory that allocators keep.
std::int64_t stdit_working_bytes(const STDiTConfig& config, const STDiTSizes& sizes,
                                 const Precision& precision);

}  // namespace reelmesh
