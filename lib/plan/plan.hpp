#pragma once
// Who does what: a workload, a machine and a request → one finished plan.
// Pure: no MPI, no files.
#include "plan/denoise.hpp"
#include "plan/machine.hpp"
#include "plan/memory.hpp"

namespace reelmesh {

/// How clips of one size are denoised and decoded.
struct ClipPlan {
  /// What one clip costs a rank of the job; zero where it has no part in a stage.
  struct OfRank {
    StageMemory denoise, decode;
    StepCost step;
  };
  std::vector<DenoiseLayout> denoise;  ///< of each replica
  DecodeLayout decode;
  std::vector<OfRank> ranks;            ///< by place
  std::string why;                      ///< the first replica's mesh was chosen; may be empty
  std::vector<StepExchange> exchanges;  ///< of the first replica
  DenoiseWorkload workload;             ///< what the plan was made for
};

/// Immutable once made. Ranks are counted by their places in the plan.
struct Plan {
  int ranks = 1;
  Roles roles;
  DeviceMap device_map;         ///< ranks of the text group
  RankWeights rank_weights;     ///< empty: equal
  std::vector<int> launched;    ///< of each place: the launcher's rank that takes it
  std::vector<int> node;        ///< of each place
  MemoryPlan memory;            ///< for the clips that need most
  std::vector<ClipPlan> sizes;  ///< in the order of the workload's

  /// The last rank to see a prompt's hidden state: it holds the embeddings.
  int embeddings_rank() const { return roles.text.first + device_map.final_norm_rank; }
  /// A rank's part of the video's tokens [frame, row, column] and of the text tokens [token] of
  /// clips of one size, and the latents [frame, row, column] that it decodes; empty boxes where it
  /// has none.
  Box tokens(std::size_t size, int rank) const;
  Box text_tokens(std::size_t size, int rank) const;
  Box decoded_latents(std::size_t size, int rank) const;
};

/// Roles, device map, places of the launched ranks, layouts and memory. Ranks that exchange most
/// share a node where one has room for them (Order::node). Where limits of memory are given, a
/// device map `auto` follows them, transformer and decoder are offloaded in turn where
/// that helps, and in split mode text and decode get more ranks while they do not fit; what does
/// not fit all the same says so in memory.fits().
///
/// Takes time proportional to ranks × log(ranks) for each size. Error(unavailable) as
/// assign_roles, Error(usage) and Error(data) as the functions of device_map.hpp.
/// device_map_file: contents of parallel.device-map where it names a JSON file.
Plan make_plan(const Workload& workload, const PlanMachine& machine, const ParallelRequest& request,
               const std::string& device_map_file = {});

/// Several lines for people: roles and device map; how clips of one size lie over the ranks.
std::string describe(const Plan& plan);
std::string describe(const Plan& plan, std::size_t size);

}  // namespace reelmesh
