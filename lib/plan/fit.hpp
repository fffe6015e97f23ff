#pragma once
// How a plan with layouts is made to fit the memory of its ranks.
#include <cstddef>

#include "plan/plan.hpp"

namespace reelmesh {

inline std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

/// The values of some ranks; none if there are none.
template <class T>
std::vector<T> of_range(const std::vector<T>& values, const RankRange& range) {
  if (values.empty()) return {};
  const auto first = values.begin() + range.first;
  return {first, first + range.count};
}

/// Completes a plan: chooses Plan::weights, memory and queue_bytes. `plan` has roles, layouts,
/// device map, memory.limits and memory.decoder. The queue of embeddings is the longest that fits;
/// offloading is used if that helps; the residence of the weights is chosen as make_plan describes.
/// If nothing fits, → the plan with the smallest excess.
Plan with_chosen_weights(const Plan& plan, const Workload& workload, const PlanMachine& machine,
                         WeightsChoice asked);

}  // namespace reelmesh
