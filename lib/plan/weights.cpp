#include "plan/weights.hpp"

#include <numeric>

#include "base/number.hpp"

namespace reelmesh {

std::vector<double> WeightPlan::kept_parts(std::size_t replica, int ranks) const {
  const auto count = static_cast<std::size_t>(ranks);
  if (residence == Residence::replicated) return std::vector<double>(count, 1);
  if (residence == Residence::host) return std::vector<double>(count, resident);
  if (shares.empty()) return std::vector<double>(count, 1.0 / ranks);
  std::vector<double> parts = shares.at(replica);
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  for (double& part : parts) part /= sum;
  return parts;
}

StageMemory without_streamed(StageMemory memory, const StreamedWeights& streamed,
                             Residence residence, double kept, std::int64_t window) {
  const std::int64_t all = streamed.kept_bytes(residence);
  memory.weights -= streamed.bytes - all + to_integer((1 - kept) * static_cast<double>(all));
  if (kept < 1 || all < streamed.bytes) memory.working += window;
  return memory;
}

const char* name_of(Residence residence) {
  switch (residence) {
    case Residence::replicated:
      return "replicated";
    case Residence::sharded:
      return "sharded";
    case Residence::host:
      return "host";
  }
  return "";
}

}  // namespace reelmesh
