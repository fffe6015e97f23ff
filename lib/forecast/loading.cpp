#include "forecast/loading.hpp"

#include "base/file.hpp"

namespace reelmesh {

double seconds_to_load(const JobPlan& planned, const LoadedWeights& weights, std::int64_t bytes) {
  const PredictedBy& by = planned.predicted_by;
  const bool autoencoder = weights.part == ModelPart::vae;
  return static_cast<double>(bytes) / by.machine->load(by.dtype, by.busy, autoencoder);
}

double seconds_from_disk(const JobPlan& planned, ModelPart part) {
  std::int64_t bytes = 0;
  const Checkpoint weights = planned.family->open(part);
  for (const auto& [path, file] : weights.files()) {
    bytes += static_cast<std::int64_t>(std::filesystem::file_size(path)) - cached_bytes(path);
  }
  return static_cast<double>(bytes) / planned.predicted_by.machine->disk;
}

}  // namespace reelmesh
