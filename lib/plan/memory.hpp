#pragma once
// Memory of each rank, foreseen: what it holds and needs in each stage, whether that fits, and what
// is done so that it does. Pure.
#include "plan/plan.hpp"

namespace reelmesh {

/// One stage on one rank, in bytes.
struct StageMemory {
  std::int64_t weights = 0;
  std::int64_t working = 0;      ///< beside them, at the largest moment
  std::int64_t of_a_thread = 0;  ///< that each thread keeps from then on
  std::int64_t all() const;      ///< with what an allocator leaves unused between blocks
};

struct RankMemory {
  StageMemory text, denoise, decode;
  std::int64_t queue = 0;  ///< embeddings of the clips that wait, while others are made
};

/// What a rank needs before it loads anything: program, libraries and MPI, as measured.
constexpr std::int64_t program_bytes = std::int64_t{56} << 20;
/// The same of a GPU's memory: the driver's context, code of libraries, their workspaces. Taken
/// from what is usual, not measured.
constexpr std::int64_t program_bytes_on_gpu = std::int64_t{1} << 30;

struct MemoryPlan {
  std::int64_t program = program_bytes;  ///< what a rank has before it loads anything
  int threads = 1;                       ///< of a rank
  std::vector<RankMemory> ranks;
  std::vector<std::int64_t> limits;  ///< of each rank; empty: none
  bool in_turn = false;  ///< the decoder is loaded after the transformer has left, for each round

  std::int64_t text(int rank) const;     ///< while prompts are encoded
  std::int64_t denoise(int rank) const;  ///< with the decoder that waits, unless in turn
  std::int64_t decode(int rank) const;   ///< with the transformer that waits, unless in turn
  std::int64_t peak(int rank) const;
  bool fits(int rank) const;
  bool fits() const;
};

/// Limits as given (none, one for all, or one a rank) for each of so many ranks. Error(unavailable)
/// naming device.memory-limit where there are too few or too many.
std::vector<std::int64_t> limits_of_ranks(const std::vector<std::int64_t>& given, int ranks);

/// Lets stages take turns in memory where some rank would not fit otherwise, and where that helps.
void take_turns(MemoryPlan& memory);

/// Why it does not fit: the rank that is furthest over its limit, the stage, the bytes that it
/// needs and the limit. Empty where it fits.
std::string what_is_over(const MemoryPlan& memory);

/// Several lines for people: each rank's peak, its limit, its stages, and what is done to save
/// memory.
std::string describe(const MemoryPlan& memory);

}  // namespace reelmesh
