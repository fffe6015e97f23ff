#include "sampler/flow_euler.hpp"

#include "sampler/rectified_flow.hpp"

namespace reelmesh {

CleanFactors FlowEuler::clean_factors(int i) const {
  return {1, -schedule_.sigmas.at(static_cast<std::size_t>(i))};
}

void FlowEuler::step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& /*history*/,
                     const DrawNoise& /*draw*/) const {
  const auto at = static_cast<std::size_t>(i);
  flow_step(schedule_.sigmas.at(at + 1) - schedule_.sigmas.at(at), prediction, x);
}

}  // namespace reelmesh
