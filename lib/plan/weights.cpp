#include "plan/weights.hpp"

#include "base/number.hpp"

namespace reelmesh {

double WeightPlan::kept_part(std::size_t replica, int rank, int ranks) const {
  if (residence == Residence::replicated) return 1;
  if (residence == Residence::host) return resident;
  if (shares.empty()) return 1.0 / ranks;
  const RankWeights& own = shares.at(replica);
  double sum = 0;
  for (const double share : own) sum += share;
  return own.at(static_cast<std::size_t>(rank)) / sum;
}

StageMemory without_streamed(StageMemory memory, const StreamedWeights& streamed, double kept,
                             std::int64_t window) {
  memory.weights -= to_integer((1 - kept) * static_cast<double>(streamed.bytes));
  if (kept < 1) memory.working += window;
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
