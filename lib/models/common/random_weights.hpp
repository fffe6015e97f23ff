#pragma once
// Random weights of untrained checkpoints, for tests and benchmarks.
#include <cstdint>
#include <string_view>

#include "tensor/tensor.hpp"

namespace reelmesh {

struct Spread {
  float mean = 0;
  float deviation = 1;
};

/// Fills a tensor of a floating type with nearly normal values: sums of four uniform ones, at most
/// 3.5 standard deviations from the mean. A value depends only on the seed, the tensor's name and
/// the element's index, so that every machine and any number of threads gives the same bits.
void fill_random(Tensor& out, std::string_view name, std::uint64_t seed, Spread spread);

/// Uniform numbers within ±limit; likewise.
void fill_uniform(Tensor& out, std::string_view name, std::uint64_t seed, float limit);

}  // namespace reelmesh
