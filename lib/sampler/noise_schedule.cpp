#include "sampler/noise_schedule.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace reelmesh {
namespace {

/// torch.linspace in float64: from both ends towards the middle, with fused multiply-adds.
std::vector<double> linspace(double start, double end, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count), start);
  if (count == 1) return values;
  const double step = (end - start) / static_cast<double>(count - 1);
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] =
        i < count / 2 ? std::fma(step, static_cast<double>(i), start)
                      : std::fma(-step, static_cast<double>(count - 1 - i), end);
  }
  return values;
}

/// Shifts and scales √ᾱ so that the last value is 0 and the first is kept (arXiv:2305.08891,
/// algorithm 1).
void rescale_to_zero_snr(std::vector<double>& alpha_bar) {
  const double first = std::sqrt(alpha_bar.front());
  const double last = std::sqrt(alpha_bar.back());
  const double scale = first / (first - last);
  for (double& a : alpha_bar) {
    const double root = (std::sqrt(a) - last) * scale;
    a = root * root;
  }
}

/// numpy.arange(count, 0, -count / steps) rounded half to even, minus one. As in numpy, the length
/// is a floating-point quotient, and the stride is the difference of the first two values.
std::vector<std::int64_t> trailing(double count, int steps) {
  const double stride = count / steps;
  const auto length = static_cast<std::int64_t>(std::ceil(-count / -stride));
  const double difference = (count - stride) - count;
  std::vector<std::int64_t> timesteps;
  for (std::int64_t i = 0; i < length; ++i) {
    const double value = i == 1 ? count - stride : count + static_cast<double>(i) * difference;
    timesteps.push_back(static_cast<std::int64_t>(std::nearbyint(value)) - 1);
  }
  return timesteps;
}

}  // namespace

void check(const SchedulerConfig& config) {
  const auto require_known = [](const char* key, const std::string& value,
                                std::initializer_list<const char*> known) {
    std::string names;
    for (const char* name : known) {
      if (value == name) return;
      names += names.empty() ? name : std::string(", ") + name;
    }
    fail(Status::data, "{} is \"{}\", expected {}", key, value, names);
  };
  const auto within = [](const char* key, double value, bool good, const char* expected) {
    require(good, Status::data, "{} is {}, expected {}", key, value, expected);
  };
  require_known("beta_schedule", config.beta_schedule, {"scaled_linear"});
  require_known("prediction_type", config.prediction_type, {"v_prediction"});
  require_known("timestep_spacing", config.timestep_spacing, {"trailing", "leading", "linspace"});
  require(!config.has_trained_betas, Status::data, "trained_betas is given, expected null");
  const std::int64_t count = config.num_train_timesteps;
  within("num_train_timesteps", static_cast<double>(count),
         count >= 2 && count <= max_train_timesteps, "2 to 1000000");
  const double start = config.beta_start;
  const double end = config.beta_end;
  within("beta_start", start, start > 0 && start < 1, "a number between 0 and 1");
  within("beta_end", end, end >= start && end < 1, "at least beta_start and below 1");
  const double shift = config.snr_shift_scale;
  within("snr_shift_scale", shift, shift > 0 && shift < 1e6, "a positive number");
  within("steps_offset", static_cast<double>(config.steps_offset),
         config.steps_offset >= 0 && config.steps_offset < count,
         "0 or more, below num_train_timesteps");
}

std::vector<double> alpha_bar_table(const SchedulerConfig& config) {
  check(config);
  std::vector<double> table = linspace(std::sqrt(config.beta_start), std::sqrt(config.beta_end),
                                       config.num_train_timesteps);
  double product = 1.0;
  const double shift = config.snr_shift_scale;
  for (double& value : table) {
    product *= 1.0 - value * value;
    value = product / (shift + (1.0 - shift) * product);
  }
  if (config.rescale_betas_zero_snr) rescale_to_zero_snr(table);
  return table;
}

std::vector<std::int64_t> inference_timesteps(const SchedulerConfig& config, int steps) {
  check(config);
  const std::int64_t count = config.num_train_timesteps;
  require(steps >= 1 && steps <= count, Status::usage, "sample.steps is {}, expected 1 to {}",
          steps, count);
  if (config.timestep_spacing == "trailing") return trailing(static_cast<double>(count), steps);

  const bool leading = config.timestep_spacing == "leading";
  const double last = static_cast<double>(count - 1);
  std::vector<std::int64_t> timesteps;
  for (std::int64_t i = 0; i < steps; ++i) {
    if (leading) {
      timesteps.push_back(i * (count / steps) + config.steps_offset);
    } else {
      const double value = i + 1 == steps && steps > 1
                               ? last
                               : static_cast<double>(i) * (last / std::max(steps - 1, 1));
      timesteps.push_back(static_cast<std::int64_t>(std::nearbyint(value)));
    }
  }
  std::reverse(timesteps.begin(), timesteps.end());
  require(timesteps.front() < count, Status::data,
          "scheduler_config.json: steps_offset is {}, which leads to timestep {} of {}",
          config.steps_offset, timesteps.front(), count);
  return timesteps;
}

int skipped_steps(int steps, double strength) {
  return std::max(steps - std::min(static_cast<int>(steps * strength), steps), 0);
}

NoiseSchedule::NoiseSchedule(const SchedulerConfig& config, int steps, int first)
    : steps_(steps),
      stride_(0),
      alpha_bar_(alpha_bar_table(config)),
      final_alpha_bar_(config.set_alpha_to_one ? 1.0 : alpha_bar_.front()),
      timesteps_(inference_timesteps(config, steps)) {
  stride_ = config.num_train_timesteps / steps;
  expect(first >= 0 && first < calls(), "{} of {} timesteps are left out", first, calls());
  timesteps_.erase(timesteps_.begin(), timesteps_.begin() + first);
}

double NoiseSchedule::alpha_bar(std::int64_t timestep) const {
  const auto count = static_cast<std::int64_t>(alpha_bar_.size());
  return alpha_bar_.at(static_cast<std::size_t>(timestep < 0 ? timestep + count : timestep));
}

std::int64_t NoiseSchedule::target(int i) const {
  return timesteps_.at(static_cast<std::size_t>(i)) - stride_;
}

double NoiseSchedule::target_alpha_bar(int i) const {
  return target(i) < 0 ? final_alpha_bar_ : alpha_bar(target(i));
}

}  // namespace reelmesh
