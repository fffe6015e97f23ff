#pragma once
// Makes layers from tensors of a checkpoint.
#include "ops/linear.hpp"
#include "weights/checkpoint.hpp"

namespace reelmesh {

/// The parameters of a linear layer: weight [out, in] and, unless there is none, bias [out].
struct LinearParameters {
  ops::WeightRows weight;  ///< read when a layer is made of it; may be read later, too
  Tensor bias;
};
/// Parameters of several linear layers with the same input, fused: their outputs are concatenated.
/// Each has <name>.weight [out, in] and, if `bias`, <name>.bias [out]. stored: the shape of a
/// weight in checkpoints, [out, …], unless it is empty. Errors as Checkpoint::load, also of the
/// later reading.
LinearParameters linear_parameters(const Checkpoint& weights, const std::vector<std::string>& names,
                                   std::int64_t in, std::int64_t out, DType dtype, bool bias = true,
                                   const Shape& stored = {});

/// Loads <name>.weight [out, in] and, if `bias`, <name>.bias [out]. Errors as Checkpoint::load.
ops::Linear load_linear(const Checkpoint& weights, const std::string& name, std::int64_t in,
                        std::int64_t out, DType dtype, bool bias = true);

/// A convolution of single pixels, which is a linear layer: <name>.weight [out, in, 1, …] with
/// kernel_axes ones, and <name>.bias [out] unless there is none. Errors as Checkpoint::load.
ops::Linear load_pointwise(const Checkpoint& weights, const std::string& name, std::int64_t in,
                           std::int64_t out, std::int64_t kernel_axes, DType dtype,
                           bool bias = true);

/// Fuses several linear layers with the same input; outputs are concatenated.
ops::Linear load_linears(const Checkpoint& weights, const std::vector<std::string>& names,
                         std::int64_t in, std::int64_t out, DType dtype, bool bias = true);

/// Reorders the rows of a layer whose outputs are [group, channel] to [channel, group]. x: [row,
/// …].
Tensor channel_first(const Tensor& x, std::int64_t channels);

/// Weight and bias of a norm, rounded to `dtype` and stored as float32.
struct Affine {
  Tensor weight, bias;
};
Affine load_affine(const Checkpoint& weights, const std::string& name, std::int64_t channels,
                   DType dtype);

}  // namespace reelmesh
