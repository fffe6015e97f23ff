#pragma once
// Memory of each rank, foreseen: what it holds and needs in each stage, and whether that fits.
#include "plan/workload.hpp"

namespace reelmesh {

struct RankMemory {
  StageMemory text, denoise, decode;
  std::int64_t embeddings = 0;  ///< of the clips that wait while others are made
};

struct MemoryPlan {
  std::int64_t program = 0;  ///< what a rank has before it loads anything
  int threads = 1;           ///< of a rank
  std::vector<RankMemory> ranks;
  std::vector<std::int64_t> limits;  ///< of each rank; empty: none
  /// Transformer and decoder are loaded in turn for each round of clips, never both at once.
  bool offloads = false;

  std::int64_t text(int rank) const;     ///< while prompts are encoded
  std::int64_t denoise(int rank) const;  ///< with the decoder's weights, unless they are offloaded
  std::int64_t decode(int rank) const;   ///< with the transformer's, unless they are offloaded
  std::int64_t peak(int rank) const;
  bool fits(int rank) const;
  bool fits() const;
};

/// The plan with offloading where some rank would not fit otherwise and offloading helps it.
MemoryPlan with_offloading(MemoryPlan memory);

/// Why it does not fit: the rank that is furthest over its limit, the stage, the bytes that it
/// needs and the limit. Empty where it fits.
std::string what_is_over(const MemoryPlan& memory);

/// Several lines for people: each rank's peak, its limit, its stages, and whether weights are
/// offloaded.
std::string describe(const MemoryPlan& memory);

}  // namespace reelmesh
