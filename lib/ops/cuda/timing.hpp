#pragma once
// Measurements of kernels, to choose between them or to list them.
#include <functional>
#include <string>
#include <vector>

#include "tensor/device.hpp"

namespace reelmesh::gpu {

/// Seconds of each of these calls, which enqueue work on the device's stream. First the GPU works
/// for 50 ms (on the first call), so that its clocks have risen. Then the calls are measured one
/// after the other in three rounds, of which each has its fastest: a change of clocks or power
/// meets all of them alike.
std::vector<double> measure_seconds(Device device, const std::vector<std::function<void()>>& calls);

/// A call other than the reference is taken only if it is faster by this factor.
constexpr double min_gain = 1.03;

/// An engine of cuDNN with its settings, measured.
struct EngineTiming {
  std::string engine;  ///< "engine 8, settings 3=1 5=64"
  double seconds = 0;
  bool same_bits = false;  ///< as the first one's
};

}  // namespace reelmesh::gpu
