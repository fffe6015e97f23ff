#pragma once
// Makes layers from tensors of a checkpoint.
#include "ops/linear.hpp"
#include "weights/checkpoint.hpp"

namespace reelmesh {

/// Loads <name>.weight [out, in] and, if `bias`, <name>.bias [out]. Errors as Checkpoint::load.
ops::Linear load_linear(const Checkpoint& weights, const std::string& name, std::int64_t in,
                        std::int64_t out, DType dtype, bool bias = true);

/// Fuses several linear layers with the same input; outputs are concatenated.
ops::Linear load_linears(const Checkpoint& weights, const std::vector<std::string>& names,
                         std::int64_t in, std::int64_t out, DType dtype, bool bias = true);

/// Weight and bias of a norm, rounded to `dtype` and stored as float32.
struct Affine {
  Tensor weight, bias;
};
Affine load_affine(const Checkpoint& weights, const std::string& name, std::int64_t channels,
                   DType dtype);

}  // namespace reelmesh
