#pragma once
// A workload, a machine and a request → a plan: which rank does what, in which layout.
// Pure functions: no MPI, no files.
#include "plan/denoise.hpp"
#include "plan/machine.hpp"
#include "plan/memory_plan.hpp"
#include "plan/per_group.hpp"
#include "plan/weights.hpp"

namespace reelmesh {

/// How clips of one size are denoised and decoded.
struct ClipPlan {
  /// The cost of one clip on a rank of the job; zero for stages in which the rank takes no part.
  struct OfRank {
    StageMemory encode, denoise, decode;  ///< as if all weights stayed on the rank
    StageMemory denoise_in_turn;          ///< DenoiseCost::in_turn
    StepCost step;                        ///< of a batch of clips
    Elapsed encode_time, decode_time;     ///< 0 if not known
  };
  PerGroup<DenoiseLayout> denoise;  ///< per replica
  PerGroup<DecodeLayout> decode;    ///< per group of Roles::decode
  std::vector<OfRank> ranks;        ///< by rank
  std::string why;                  ///< why the first replica has its mesh; may be empty
  DenoiseWorkload workload;         ///< what the plan was made for
};

/// Immutable once made. Ranks are in plan order; `launched` maps them to the launcher's ranks.
struct Plan {
  int ranks = 1;
  Roles roles;
  DeviceMap device_map;                ///< with ranks of the text group
  RankWeights rank_weights;            ///< empty: equal
  std::vector<LaunchedRank> launched;  ///< for each rank the process that takes it
  std::vector<int> node;               ///< for each rank its node
  WeightPlan weights;                  ///< of the transformer
  MemoryPlan memory;                   ///< maximum over the clip sizes
  std::vector<Elapsed> text_time;      ///< of a text, for each rank; 0 if not known
  /// Bytes of the text embeddings and encoded inputs of all clips, or of the most that can wait.
  std::int64_t embedding_bytes = 0;
  std::int64_t queue_bytes = 0;  ///< of these, what may wait on a rank at a time
  std::vector<ClipPlan> sizes;   ///< in the order of Workload::sizes

  /// The rank that has the final norm of the text encoder, and so the embeddings.
  int embeddings_rank() const { return roles.text.first + device_map.final_norm_rank; }
  /// For clips of one size: a rank's box of the video tokens [frame, row, column], of the text
  /// tokens [token], and of the latents [frame, row, column] that it decodes; empty if it has none.
  Box tokens(std::size_t size, int rank) const;
  Box text_tokens(std::size_t size, int rank) const;
  Box decoded_latents(std::size_t size, int rank) const;
};

/// Roles, device map, placement of the launched ranks, layouts and memory. With Order::node, ranks
/// that exchange most share a node that has room for them. With memory limits, the device map
/// `auto` respects them, the queue of embeddings is shortened if that helps, transformer and
/// decoder are offloaded in turn if that helps, and in split mode text and decode get more ranks
/// while they do not fit. If all that is not enough, and the request leaves it open, the weights of
/// text encoder or transformer are sharded or kept on the host, whichever is predicted to make a
/// step faster. The result need not fit: see memory.fits().
///
/// Takes time proportional to ranks × log(ranks) per size. Error(unavailable) as assign_roles;
/// errors of a device map as in device_map.hpp. device_map_file: contents of the JSON file that
/// parallel.device-map names, or empty.
Plan make_plan(const Workload& workload, const PlanMachine& machine, const ParallelRequest& request,
               const std::string& device_map_file = {});

/// Adds the bytes of sharded weights that ranks send in each step (StepCost::sent_weights), which
/// plans that are only compared do not need.
void complete_plan(Plan& plan, const Workload& workload);

}  // namespace reelmesh
