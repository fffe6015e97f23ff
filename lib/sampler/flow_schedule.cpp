#include "sampler/flow_schedule.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "sampler/noise_schedule.hpp"

namespace reelmesh {
namespace {

template <class Number>
Number shifted(Number shift, Number sigma) {
  return shift * sigma / (Number{1} + (shift - Number{1}) * sigma);
}

void check(const FlowSettings& settings, int steps) {
  check(settings);
  require(steps >= 1 && steps <= settings.num_train_timesteps, Status::usage,
          "sample.steps is {}, expected 1 to {}", steps, settings.num_train_timesteps);
  expect(settings.skipped >= 0 && settings.skipped < steps, "{} of {} steps skipped",
         settings.skipped, steps);
  require(settings.levels.empty() || std::ssize(settings.levels) == steps, Status::usage,
          "sample.noise-levels: found {} levels for {} steps, expected one for each step",
          settings.levels.size(), steps);
}

// Element i of numpy.linspace(first, last, count).
double linspace(double first, double last, int count, int i) {
  if (i + 1 == count && count > 1) return last;
  return static_cast<double>(i) * ((last - first) / std::max(count - 1, 1)) + first;
}

// The steps that are left, behind which the noise level is 0.
FlowSchedule finished(FlowSchedule schedule, int skipped) {
  schedule.sigmas.erase(schedule.sigmas.begin(), schedule.sigmas.begin() + skipped);
  schedule.timesteps.erase(schedule.timesteps.begin(), schedule.timesteps.begin() + skipped);
  schedule.sigmas.push_back(0);
  return schedule;
}

}  // namespace

void check(const FlowSettings& settings) {
  require(settings.num_train_timesteps >= 1 && settings.num_train_timesteps <= max_train_timesteps,
          Status::data, "num_train_timesteps is {}, expected 1 to {}", settings.num_train_timesteps,
          max_train_timesteps);
  require(std::isfinite(settings.shift) && settings.shift > 0, Status::usage,
          "the shift of the noise levels is {}, expected a positive number", settings.shift);
}

FlowSchedule unipc_schedule(const FlowSettings& settings, int steps) {
  check(settings, steps);
  require(settings.levels.empty(), Status::usage,
          "sample.noise-levels: found {} for the sampler unipc, expected none, or "
          "sample.scheduler = euler",
          fmt::join(settings.levels, ","));
  const auto train = static_cast<double>(settings.num_train_timesteps);
  FlowSchedule schedule;
  for (int i = steps; i > 0; --i) {
    const double sigma = shifted(settings.shift, 1 - linspace(1, 1 / train, steps + 1, i));
    schedule.sigmas.push_back(static_cast<float>(sigma));
    schedule.timesteps.push_back(std::trunc(sigma * train));
  }
  return finished(std::move(schedule), settings.skipped);
}

FlowSchedule euler_schedule(const FlowSettings& settings, int steps) {
  check(settings, steps);
  const auto train = static_cast<double>(settings.num_train_timesteps);
  const auto shift = static_cast<float>(settings.shift);
  const float lowest = shifted(shift, static_cast<float>(1 / train));
  FlowSchedule schedule;
  for (int i = 0; i < steps; ++i) {
    const double sigma = linspace(train, static_cast<double>(lowest) * train, steps, i) / train;
    const float rounded =
        settings.levels.empty()
            ? static_cast<float>(shifted(settings.shift, sigma))
            : shifted(shift, static_cast<float>(settings.levels[static_cast<std::size_t>(i)]));
    schedule.sigmas.push_back(rounded);
    schedule.timesteps.push_back(static_cast<double>(rounded * static_cast<float>(train)));
  }
  return finished(std::move(schedule), settings.skipped);
}

}  // namespace reelmesh
