#include "sampler/flow_samplers.hpp"

#include "sampler/flow_euler.hpp"
#include "sampler/unipc.hpp"

namespace reelmesh {
namespace {

template <class T>
std::unique_ptr<const Sampler> made(const FlowSettings& settings, int steps) {
  return std::make_unique<T>(settings, steps);
}

}  // namespace

std::span<const FlowSampler> flow_samplers() {
  static constexpr FlowSampler all[] = {
      {"unipc", "UniPCMultistepScheduler", unipc_schedule, made<UniPc>},
      {"euler", "FlowMatchEulerDiscreteScheduler", euler_schedule, made<FlowEuler>}};
  return all;
}

}  // namespace reelmesh
