#include "plan/step_time.hpp"

#include <algorithm>

#include "plan/fit.hpp"

namespace reelmesh {
namespace {

// Through which weights come that a rank does not keep.
const Link& link_of_weights(const Plan& plan, int rank, const MachineTimes& machine) {
  const bool from_host = plan.weights.residence == Residence::host;
  const auto group = std::ranges::find_if(
      plan.roles.denoise, [&](const RankRange& range) { return range.contains(rank); });
  const auto nodes = of_range(plan.node, *group);
  const bool near = std::ranges::adjacent_find(nodes, std::ranges::not_equal_to()) == nodes.end();
  return or_never(from_host ? machine.host_memory : near ? machine.node : machine.network);
}

}  // namespace

Elapsed step_time(const Plan& plan, const ClipPlan& size, int rank, const MachineTimes& machine) {
  Elapsed time = size.ranks[index(rank)].step.time;
  if (plan.weights.fetched == 0 || time.total() <= 0) return time;
  const Link& link = link_of_weights(plan, rank, machine);
  const double fetching =
      link.latency + static_cast<double>(plan.weights.fetched) / link.bytes_per_s;
  // It is hidden by the computation, apart from what the rank itself has to do for it.
  const double hidden = time.total() + link.share * fetching;
  time.network += std::max(hidden, fetching) - time.total();
  return time;
}

Elapsed step_time(const Plan& plan, const ClipPlan& size, const RankRange& ranks,
                  const MachineTimes& machine) {
  Elapsed slowest;
  for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
    const Elapsed mine = step_time(plan, size, rank, machine);
    if (mine.total() > slowest.total()) slowest = mine;
  }
  return slowest;
}

double step_cost(const Plan& plan, const ClipPlan& size, int rank, double speed,
                 const MachineTimes* machine) {
  if (machine != nullptr) return step_time(plan, size, rank, *machine).total() / speed;
  return size.ranks[index(rank)].step.total(speed, plan.weights.fetched);
}

}  // namespace reelmesh
