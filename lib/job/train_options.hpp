#pragma once
#include <vector>

#include "job/options.hpp"

namespace reelmesh {

/// Sections [data], [train] and [lora] of the table of options (job/options.hpp).
std::vector<Option> training_options();

}  // namespace reelmesh
