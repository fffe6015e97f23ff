#include "forecast/durations.hpp"

#include <set>

#include "base/file.hpp"
#include "models/checkpoints/parts.hpp"
#include "plan/step_time.hpp"

namespace reelmesh {
namespace {

double number(std::int64_t n) { return static_cast<double>(n); }

// Of the slowest rank.
double longest(const ClipPlan& size, Elapsed ClipPlan::OfRank::*time) {
  double seconds = 0;
  for (const ClipPlan::OfRank& rank : size.ranks) {
    seconds = std::max(seconds, (rank.*time).total());
  }
  return seconds;
}

}  // namespace

PartBytes bytes_on_disk(const Family& family, DType of_missing) {
  PartBytes all{};
  for (const ModelPart part : family.paths().parts()) {
    std::int64_t& bytes = all[static_cast<std::size_t>(part)];
    if (!family.paths().has_weights(part)) {
      const Config config = Config::read(family.paths().folder(part) / "config.json");
      for (const auto& [name, shape] : expected_tensors(part, config)) {
        bytes += numel(shape) * size_of(of_missing);
      }
      continue;
    }
    const Checkpoint weights = family.open(part);
    for (const auto& [path, file] : weights.files()) {
      bytes += static_cast<std::int64_t>(std::filesystem::file_size(path)) - cached_bytes(path);
    }
  }
  return all;
}

double Durations::load(const LoadedWeights& weights, int rank) const {
  const RankMemory& memory = plan_.memory.ranks[static_cast<std::size_t>(rank)];
  std::int64_t bytes = (memory.*weights.stage).weights, on_host = 0;
  if (bytes == 0 || machine() == nullptr) return 0;
  const int experts = planned_.family->experts();
  switch (weights.part) {
    case ModelPart::text_encoder:
      on_host = memory.text_on_host;
      break;
    case ModelPart::transformer:
    case ModelPart::transformer_2:
      if (weights.part == ModelPart::transformer_2 && experts == 1) return 0;
      if (plan_.weights.residence == Residence::host) {
        on_host = plan_.weights.all - plan_.weights.kept;
      }
      if (!plan_.memory.experts_in_turn) {  // of both
        bytes /= experts;
        on_host /= experts;
      }
      break;
    case ModelPart::vae:
    case ModelPart::image_encoder:
      break;
  }
  const PredictedBy& by = planned_.predicted_by;
  return number(bytes + on_host) /
             machine()->load(by.dtype, by.busy, weights.part == ModelPart::vae) +
         touch(on_host);
}

double Durations::from_disk(ModelPart part) const {
  if (machine() == nullptr) return 0;
  const PredictedBy& by = planned_.predicted_by;
  const double bytes = number(by.on_disk[static_cast<std::size_t>(part)]);
  const std::set<int> nodes(plan_.node.begin(), plan_.node.end());
  if (!by.copies_weights || nodes.size() < 2) return bytes / machine()->disk;
  // Each node reads a part and sends it to the others.
  return bytes / (machine()->disk * number(std::ssize(nodes))) +
         bytes / or_never(machine()->network).bytes_per_s;
}

double Durations::touch(std::int64_t bytes) const {
  return machine() == nullptr ? 0 : number(bytes) / machine()->touch;
}

double Durations::input(std::size_t size) const {
  return longest(plan_.sizes[size], &ClipPlan::OfRank::encode_time);
}

double Durations::step(std::size_t size, std::size_t replica) const {
  const ClipPlan& clip = plan_.sizes[size];
  const RankRange& ranks = plan_.roles.denoise[replica];
  double max = 0;
  for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
    const double speed =
        plan_.rank_weights.empty() ? 1 : plan_.rank_weights[static_cast<std::size_t>(rank)];
    max = std::max(max, step_cost(plan_, clip, rank, speed, machine()));
  }
  return planned_.predicted_by.measured_step * max / number(clip.workload.clips);
}

double Durations::decode(std::size_t size) const {
  return longest(plan_.sizes[size], &ClipPlan::OfRank::decode_time);
}

double Durations::write(std::size_t size) const {
  if (machine() == nullptr) return 0;
  const VideoSize& video = planned_.formats[size].size;
  return number(3 * video.frames * video.height * video.width) / machine()->write;
}

double Durations::save(const ClipOutline& clip) const {
  if (machine() == nullptr) return 0;
  const std::int64_t bytes =
      numel(planned_.kinds[clip.kind].latent_shape()) * size_of(DType::float32) +
      planned_.embedding_bytes(clip, DType::float32);
  return number(bytes) / machine()->write;
}

}  // namespace reelmesh
