#pragma once
// How long the stages of a planned job take on its ranks, as the machine's times say.
#include "forecast/dry_runs.hpp"
#include "job/job_plan.hpp"

namespace reelmesh {

/// The weights that a stage loads.
struct LoadedWeights {
  StageMemory RankMemory::*stage;
  std::int64_t (MemoryPlan::*needed)(int rank) const;  ///< bytes of a rank in the stage
  ModelPart part;
  std::optional<ModelPart> second = {};  ///< another part, which some models have

  constexpr bool has(ModelPart some) const { return part == some || second == some; }
};
namespace loaded {
inline constexpr LoadedWeights text{&RankMemory::text, &MemoryPlan::text, ModelPart::text_encoder};
inline constexpr LoadedWeights encode{&RankMemory::encode, &MemoryPlan::encode, ModelPart::vae,
                                      ModelPart::image_encoder};
inline constexpr LoadedWeights denoise{&RankMemory::denoise, &MemoryPlan::denoise,
                                       ModelPart::transformer};
inline constexpr LoadedWeights denoise_2{&RankMemory::denoise, &MemoryPlan::denoise,
                                         ModelPart::transformer_2};
inline constexpr LoadedWeights decode{&RankMemory::decode, &MemoryPlan::decode, ModelPart::vae};
inline constexpr std::array all{text, encode, denoise, denoise_2, decode};
static_assert(std::ranges::all_of(model_parts,
                                  [](ModelPart part) {
                                    return std::ranges::any_of(
                                        all, [part](const auto& one) { return one.has(part); });
                                  }),
              "a part of models that no stage loads");
}  // namespace loaded

/// Bytes of the weight files of each part that the system does not have in memory now; where there
/// are none (ModelPaths::has_weights), of files with weights of this type.
PartBytes bytes_on_disk(const Family& family, DType of_missing);

/// Seconds. Without a machine, a step takes its estimated cost in FLOPs (StepCost::total), and
/// everything else takes no time. Sizes are indices of plan.sizes; plan: that of the job, or its
/// tail, which must outlive the object.
class Durations {
 public:
  Durations(const JobPlan& planned, const Plan& plan) : planned_(planned), plan_(plan) {}

  /// A rank reads and packs its part of these weights, which the system has in memory; 0 if it has
  /// none. What is kept on the host is read, too.
  double load(const LoadedWeights& weights, int rank) const;
  double from_disk(ModelPart part) const;
  /// First use of so many bytes of memory.
  double touch(std::int64_t bytes) const;
  /// The image or video that a clip begins from to latents, on the slowest rank.
  double input(std::size_t size) const;
  /// A step of one clip of a batch on the slowest rank of a replica.
  double step(std::size_t size, std::size_t replica) const;
  /// A clip on the slowest rank.
  double decode(std::size_t size) const;
  double write(std::size_t size) const;
  /// The state of a clip for a restart.
  double save(const ClipOutline& clip) const;

 private:
  const MachineTimes* machine() const { return planned_.predicted_by.machine.get(); }

  const JobPlan& planned_;
  const Plan& plan_;
};

}  // namespace reelmesh
