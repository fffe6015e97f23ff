#pragma once
#include <string>

#include "ops/cuda/timing.hpp"
#include "tensor/ledger.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// y[b, t, r, c, o] = Σ x[b, t + i, r·stride + j, c·stride + k, n]·w[o, i, j, k, n]: no padding,
/// sums in float32, rounded once. x: [item, frame, row, column, in], w: [out, kt, kernel, kernel,
/// in], y: [item, frames − kt + 1, row, column, out], of one floating type; channels are multiples
/// of 8. tf32: float32 inputs may be rounded to TF32. The algorithm is deterministic, and fixed for
/// given shapes, stride, type and tf32. Throws Error(unavailable) if cuDNN has none.
void convolve(const Tensor& x, const Tensor& w, std::int64_t stride, bool tf32, Tensor& y);

/// Measures the engines that convolve() accepts for these shapes, in the order in which cuDNN
/// proposes them, as many as about `seconds` allow, and uses the fastest from now on; with
/// `reproducible` of those that have the bits of the first one. Keeps the first one if they cannot
/// be measured, for instance for lack of memory. Throws Error(unavailable) if there is none.
void measure_convolution(Device device, const ConvolutionShape& shape, bool tf32, bool reproducible,
                         double seconds);
/// The engine that convolve() uses for these shapes on this rank, for use_convolution() on all
/// ranks; attempt: from 0, the next in cuDNN's order after so many that some rank could not use.
/// Throws Error(unavailable) if there is none.
std::string convolution_choice(Device device, const ConvolutionShape& shape, bool tf32,
                               std::size_t attempt);
/// Convolves with that engine from now on. → false, and changes nothing, if it cannot run here.
bool use_convolution(Device device, const ConvolutionShape& shape, bool tf32,
                     const std::string& choice);

/// Measures all engines that convolve() accepts. The first is the one that it uses. y is
/// overwritten. For benchmarks.
std::vector<EngineTiming> time_convolutions(const Tensor& x, const Tensor& w, std::int64_t stride,
                                            bool tf32, Tensor& y);

}  // namespace reelmesh::gpu
