#pragma once
// The search for the layout of a clip over the ranks that denoise it.
#include <array>
#include <map>
#include <tuple>

#include "plan/workload.hpp"

namespace reelmesh {

/// A layout among which the plan chooses.
struct LayoutCandidate {
  DenoiseLayout layout;
  std::optional<AttentionMesh> attention;  ///< of a batch, if all tokens attend to one another
};

/// The layouts that a model can do, those of its LayoutKind. At least one.
std::vector<LayoutCandidate> possible_layouts(const DenoiseWorkload& workload,
                                              const LayoutRequest& request);

/// For models whose text and video tokens attend to one another: both are cut, and attention is
/// divided by a mesh. Of the meshes cfg × ring × Ulysses all that the request leaves: with two
/// branches of guidance and an even number of ranks, cfg is 2 unless asked otherwise, since it
/// exchanges once per step and the other axes in every layer. With one branch cfg is 1, and a
/// requested ring takes the ranks of a requested cfg. With unequal weights tokens are cut in
/// proportion to them; heads are still divided evenly, so a ring then balances the load better than
/// Ulysses. If times are known, all cuts of the tokens and cfg 1 are candidates, too, where the
/// request leaves them open. With LayoutKind::mesh_whole_text the text is not cut, since it is no
/// part of that attention.
std::vector<LayoutCandidate> mesh_layouts(const DenoiseWorkload& workload,
                                          const LayoutRequest& request);

/// For models that attend within frames and along time, and to the whole text: one layout, or, if
/// times are known and Shard leaves it open, the grids of frames and rows after it. Frames are cut
/// while there are as many frames as ranks, otherwise frames and rows, by the grid with the
/// smallest makespan; Shard can ask for frames, rows or a grid.
std::vector<LayoutCandidate> frame_layouts(const DenoiseWorkload& workload,
                                           const LayoutRequest& request);

/// Sizes of clips of a job for which all layouts are compared by dry runs; of further sizes those
/// whose estimated step is nearly as short as the shortest.
inline constexpr std::size_t few_sizes = 8;

struct ChosenLayout {
  LayoutCandidate chosen;
  std::string why;  ///< why this mesh, one line; empty if there was nothing to choose

  const DenoiseLayout& layout() const { return chosen.layout; }
};

/// The layout of a clip. Of several candidates those are preferred whose busiest rank has at most
/// 1.1 times the work of the least busy one; of these the one with the lowest cost is taken: FLOPs
/// of the busiest rank plus flops_per_byte × bytes of the rank that sends most, estimated. If times
/// are known, the one with the shortest step is taken, even or not. With
/// unequal weights, work / weight is compared instead of work.
ChosenLayout choose_layout(const DenoiseWorkload& workload, const LayoutRequest& request);

/// Layouts that were searched for, of all sizes of a job.
class FoundLayouts {
 public:
  /// choose_layout(), and decode_layout(), of these arguments.
  const ChosenLayout& of_denoising(const DenoiseWorkload& workload, const LayoutRequest& request);
  const DecodeLayout& of_decoding(std::size_t size, const DecodeWorkload& workload, int ranks,
                                  const RankWeights& weights);

 private:
  using Mesh = std::array<std::optional<int>, 3>;
  std::map<std::tuple<std::size_t, Mesh, Shard, int, RankWeights>, ChosenLayout> denoising_;
  std::map<std::tuple<std::size_t, int, RankWeights>, DecodeLayout> decoding_;
};

/// Estimated cost of a step on one rank of the group, to compare layouts and sizes: attention in
/// proportion to queries × heads of the rank, or to its tokens, everything else in proportion to
/// its tokens. Takes constant time.
StepCost estimated_step(const DenoiseWorkload& workload, const LayoutCandidate& candidate,
                        int rank);

}  // namespace reelmesh
