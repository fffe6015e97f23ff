#pragma once
// Measurements of kernels, to choose between them or to list them.
#include <functional>
#include <string>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// Seconds of each of these calls, which enqueue work on the device's stream. First the GPU works
/// for `warm_up` seconds (on the first call), so that its clocks have risen. Then the calls are
/// measured one after the other in three rounds, of which each has its fastest: a change of clocks
/// or power meets all of them alike.
std::vector<double> measure_seconds(Device device, const std::vector<std::function<void()>>& calls,
                                    double warm_up = 0.05);

/// A call other than the reference is taken only if it is faster by this factor.
constexpr double min_gain = 1.03;

struct FastestCall {
  std::size_t index = 0;              ///< of the call; 0 is the reference
  double seconds = 0, reference = 0;  ///< of the call and of the reference; 0: not measured
};
/// The fastest of these calls, each of which enqueues work that writes all of `result`; with
/// `same_bits` of those after which it has the bits that the first call gives. The first is the
/// reference, which stays unless another is faster by min_gain. Calls are tried in their order, as
/// many as half of `seconds` allows, the others are left out; measuring takes the rest, or a few
/// calls longer. result: of a floating type, on the device.
FastestCall fastest_call(Device device, const std::vector<std::function<void()>>& calls,
                         const Tensor& result, bool same_bits, double seconds);

/// A dense tensor of pseudo-random numbers in [-1, 1), the same on every rank and in every call: a
/// million numbers, which are repeated.
Tensor numbers_to_measure(Device device, DType dtype, const Shape& shape);

/// Such numbers, but in each row of the last axis the second half is the first half times `sign`, 1
/// or -1 (unless the axis has an odd length). The dot product of a row made with 1 and a row made
/// with -1 is 0 but for rounding errors. So two calls that add in different orders give different
/// bits, even where results are rounded to 16 bits.
Tensor cancelling_numbers(Device device, DType dtype, const Shape& shape, int sign);

/// An engine of cuDNN with its settings, measured.
struct EngineTiming {
  std::string engine;  ///< "engine 8, settings 3=1 5=64"
  double seconds = 0;
  bool same_bits = false;  ///< as the first one's
};

}  // namespace reelmesh::gpu
