#pragma once
// How long weights take to load, as predicted.
#include <array>

#include "forecast/plan_job.hpp"

namespace reelmesh {

/// The weights that a stage loads.
struct LoadedWeights {
  StageMemory RankMemory::*stage;
  std::int64_t (MemoryPlan::*needed)(int rank) const;  ///< bytes of a rank in the stage
  ModelPart part;
};
namespace loaded {
inline constexpr LoadedWeights text{&RankMemory::text, &MemoryPlan::text, ModelPart::text_encoder};
inline constexpr LoadedWeights encode{&RankMemory::encode, &MemoryPlan::encode, ModelPart::vae};
inline constexpr LoadedWeights denoise{&RankMemory::denoise, &MemoryPlan::denoise,
                                       ModelPart::transformer};
inline constexpr LoadedWeights decode{&RankMemory::decode, &MemoryPlan::decode, ModelPart::vae};
inline constexpr std::array all{text, encode, denoise, decode};
}  // namespace loaded

/// Seconds in which a rank reads and packs so many bytes of these weights, which the system has in
/// memory. planned: with a machine.
double seconds_to_load(const JobPlan& planned, const LoadedWeights& weights, std::int64_t bytes);

/// Seconds in which the files of a part come from the disk, as far as the system does not have them
/// in memory now.
double seconds_from_disk(const JobPlan& planned, ModelPart part);

}  // namespace reelmesh
