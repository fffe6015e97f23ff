#pragma once
// Gradients of a model's parameters, from what its backward pass knows of their layers. Sums over
// tokens are added on the ranks that have columns of a matrix (TokenColumns), over all tokens in
// global order, so that their bits do not depend on the layout.
#include "layout/token_columns.hpp"
#include "models/common/trained_weights.hpp"

namespace reelmesh {

/// x as rows of its last axis, which may have no elements.
Tensor as_rows(const Tensor& x);
/// Columns of [row, column]; x itself if these are all.
Tensor column_range(const Tensor& x, const TokenColumns::Range& range);
/// [row, column] of each, side by side.
Tensor side_by_side(const Tensor& a, const Tensor& b);
/// The sum of the rows, in their order: [row, column] of float32 on the host → [1, column].
Tensor row_sum(const Tensor& x);
/// d multiplied by the derivative of silu at x; float32 on the host, of one shape.
Tensor through_silu(const Tensor& d, const Tensor& x);

/// Of one sample. x: what a layer takes; d: the gradient of what it gives; modules have the names
/// of checkpoints. Members whose names end with _together are collective over the group.
class LayerGradients {
 public:
  /// weights and columns must outlive the object.
  LayerGradients(const TrainedWeights& weights, const comm::Group& group,
                 const TokenColumns& columns, Device device)
      : weights_(weights),
        group_(group),
        columns_(columns),
        device_(device),
        host_(device.host()) {}

  /// Begins a sample, whose gradients go to `take`, which must outlive its last call.
  void begin(const TakeGradient& take) { take_ = &take; }

  /// Of a layer whose outputs ranks divide. x: all tokens, all inputs; d: all tokens, own outputs.
  void by_outputs(const std::string& module, const Tensor& x, const Tensor& d) const;
  /// Of a layer whose inputs they divide. x: all tokens, own inputs; d: all tokens, all outputs.
  void by_inputs(const std::string& module, const Tensor& x, const Tensor& d) const;
  /// The same of layers that take a single row, the same on all ranks: x [1, in], d [1, out],
  /// float32 on the host.
  void row_by_outputs(const std::string& module, const Tensor& x, const Tensor& d) const;
  void row_by_inputs(const std::string& module, const Tensor& x, const Tensor& d) const;

  /// Takes this rank's part of a parameter, or its part of the whole [row, column].
  void take(const std::string& name, const Tensor& gradient) const {
    (*take_)(weights_.index(name), gradient);
  }
  void take_own(const std::string& name, const Tensor& whole) const;
  /// own: this rank's columns of [row, channel] → all of them, on every rank.
  Tensor whole_together(const Tensor& own, std::int64_t channels) const;

 protected:
  const TrainedWeights& weights_;
  comm::Group group_;
  const TokenColumns& columns_;
  Device device_, host_;

 private:
  const TakeGradient* take_ = nullptr;
};

}  // namespace reelmesh
