#pragma once
// Predicted memory of each rank in each stage, and whether it fits the limits. In bytes.
#include "plan/request.hpp"
#include "plan/workload.hpp"

namespace reelmesh {

struct RankMemory {
  StageMemory text, encode, denoise, decode;  ///< encode: of images and videos
  std::int64_t embeddings = 0;                ///< of the clips that wait for a later stage
  /// Whether encoder and decoder are in memory together, as in split mode, unless the decoder is
  /// unloaded.
  bool keeps_encoder = false;
  std::int64_t text_on_host = 0;  ///< bytes of layers of the text encoder
  /// Of communicators between GPUs: while prompts are encoded, and later.
  std::int64_t text_connections = 0, connections = 0;
  /// `denoise` if experts are in memory in turn; unused if they cannot be.
  StageMemory denoise_in_turn;
  // Of a rank with a GPU, on the host:
  std::int64_t weights_on_host = 0;  ///< its part of those of the transformer that its host keeps
  std::int64_t embeddings_on_host = 0;  ///< as `embeddings`
};

/// How the weights of some stages make room for others.
struct Offloading {
  /// Whether the decoder is loaded for each round of clips, and unloaded after it.
  bool unloads_decoder = false;
  /// Whether transformer and decoder are loaded in turn for each round of clips, never together.
  bool offloads = false;
  /// Whether of two experts only the one whose steps are computed is in memory: each is loaded anew
  /// where a batch comes to its steps.
  bool experts_in_turn = false;
};

struct MemoryPlan : Offloading {
  std::int64_t program = 0;  ///< of a rank before it loads anything
  /// The same on the host, of ranks with GPUs, whose memory is planned; 0: ranks have none.
  std::int64_t host_program = 0;
  int threads = 1;  ///< per rank
  std::vector<RankMemory> ranks;
  std::vector<std::int64_t> limits;                  ///< per rank; empty: no limits
  WeightsChoice decoder = WeightsChoice::automatic;  ///< as requested; replicated: must stay

  std::int64_t text(int rank) const;     ///< while prompts are encoded
  std::int64_t encode(int rank) const;   ///< while images or videos are encoded
  std::int64_t denoise(int rank) const;  ///< with the decoder's weights, unless they are unloaded
  std::int64_t decode(int rank) const;   ///< with the transformer's, unless they are offloaded
  std::int64_t peak(int rank) const;
  bool on_gpu() const { return host_program > 0; }
  /// What the rank takes of its host at the peak; without a GPU peak().
  std::int64_t host_peak(int rank) const;
  bool fits(int rank) const;
  bool fits() const;
  /// Whether this rank has encoder and decoder in memory together.
  bool keeps_both(const RankMemory& rank) const {
    return rank.keeps_encoder && !offloads && !unloads_decoder;
  }
  /// The smallest room that a rank has left below its limit, negative if one exceeds it.
  std::int64_t room() const;
};

/// memory: without offloading, except that its decoder may be unloaded.
MemoryPlan with(const Offloading& offloading, MemoryPlan memory);

/// If some rank exceeds its limit: the plan with the decoder unloaded, experts in turn, or
/// transformer and decoder offloaded, the first that fits, or else that with the smallest excess.
/// Otherwise `memory`.
MemoryPlan with_offloading(const MemoryPlan& memory);

/// Why the plan does not fit: the rank with the largest excess over its limit, the stage, the bytes
/// needed and the limit. Empty if it fits.
std::string excess_text(const MemoryPlan& memory);

}  // namespace reelmesh
