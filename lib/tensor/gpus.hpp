#pragma once
// What attention must know of GPUs to choose how much it sends at a time.
#include <limits>

#include "tensor/device.hpp"

namespace reelmesh {

/// The number of a GPU's multiprocessors, on which thread blocks run; 0 for the host.
int multiprocessors(Device device);

/// The GPUs of the ranks of a dry run.
struct GpuRanks {
  int multiprocessors = 132;  ///< of each; an H100 has 132
  /// So many consecutive ranks of a group share a node.
  int of_node = std::numeric_limits<int>::max();
};

}  // namespace reelmesh
