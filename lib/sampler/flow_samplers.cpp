#include "sampler/flow_samplers.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "sampler/flow_euler.hpp"
#include "sampler/unipc.hpp"

namespace reelmesh {
namespace {

template <class T>
std::unique_ptr<const Sampler> made(const FlowSettings& settings, int steps) {
  return std::make_unique<T>(settings, steps);
}

const FlowSampler* find(std::string_view FlowSampler::*name, std::string_view value) {
  const auto all = flow_samplers();
  const auto found = std::ranges::find(all, value, name);
  return found == all.end() ? nullptr : &*found;
}

std::string names(std::string_view FlowSampler::*name) {
  std::vector<std::string_view> all;
  for (const FlowSampler& sampler : flow_samplers()) all.push_back(sampler.*name);
  return fmt::format("{}", fmt::join(all, " or "));
}

}  // namespace

std::span<const FlowSampler> flow_samplers() {
  static constexpr FlowSampler all[] = {
      {"unipc", "UniPCMultistepScheduler", made<UniPc>},
      {"euler", "FlowMatchEulerDiscreteScheduler", made<FlowEuler>}};
  return all;
}

const FlowSampler& flow_sampler_of_class(std::string_view name) {
  const FlowSampler* found = find(&FlowSampler::class_name, name);
  require(found != nullptr, Status::data, "found the class {}, expected {}", name,
          names(&FlowSampler::class_name));
  return *found;
}

const FlowSampler& flow_sampler_of_option(std::string_view name) {
  const FlowSampler* found = find(&FlowSampler::option, name);
  require(found != nullptr, Status::usage, "sample.scheduler is \"{}\", expected {}", name,
          names(&FlowSampler::option));
  return *found;
}

}  // namespace reelmesh
