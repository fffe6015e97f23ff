#include "plan/workload.hpp"

#include <algorithm>

namespace reelmesh {

double StepCost::total(double speed, std::int64_t fetched_bytes) const {
  return std::max(flops / speed + flops_per_byte * static_cast<double>(sent_bytes),
                  flops_per_byte * static_cast<double>(fetched_bytes));
}

Shape DenoiseWorkload::tokens() const {
  Shape tokens;
  for (std::size_t axis = 0; axis < latents.size(); ++axis) {
    tokens.push_back((latents[axis] + patch.at(axis) - 1) / patch[axis]);
  }
  return tokens;
}

}  // namespace reelmesh
