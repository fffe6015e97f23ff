#pragma once
// Tensors of a checkpoint as layers.
#include "ops/linear.hpp"
#include "weights/checkpoint.hpp"

namespace reelmesh {

/// <name>.weight [out, in], and <name>.bias [out] where `bias`.
ops::Linear load_linear(const Checkpoint& weights, const std::string& name, std::int64_t in,
                        std::int64_t out, DType dtype, bool bias = true);

/// Several linear layers with the same input as one: outputs one after the other.
ops::Linear load_linears(const Checkpoint& weights, const std::vector<std::string>& names,
                         std::int64_t in, std::int64_t out, DType dtype, bool bias = true);

/// Weight and bias of a norm, float32 as read in `dtype`.
struct Affine {
  Tensor weight, bias;
};
Affine load_affine(const Checkpoint& weights, const std::string& name, std::int64_t channels,
                   DType dtype);

}  // namespace reelmesh
