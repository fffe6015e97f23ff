#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "job/options.hpp"

namespace reelmesh {

/// Sections [data], [train] and [lora] of the table of options (job/options.hpp).
std::vector<Option> training_options();

/// A fingerprint of a training (job/options.hpp) in two.
struct DividedFingerprint {
  std::string rate;  ///< what train.new-rate lets change: train.steps, and options of the rate
  std::string rest;
};
DividedFingerprint divided_by_rate(std::string_view fingerprint);

}  // namespace reelmesh
