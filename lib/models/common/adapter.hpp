#pragma once
// Low-rank changes of linear layers that are being trained (LoRA, Hu et al. 2021).
#include <span>
#include <string>
#include <vector>

#include "ops/linear.hpp"

namespace reelmesh {

/// A linear layer with a LoRA: its weight [out, in] is changed by factor()·B·A.
struct LoraTarget {
  std::string module;  ///< "transformer_blocks.0.attn1.to_q"
  std::int64_t in = 0, out = 0, rank = 0;
  double alpha = 0;

  double factor() const { return alpha / static_cast<double>(rank); }
};

/// Values of one target, or their gradient; float32 on the host. For some columns or for all.
struct LoraValues {
  Tensor down;  ///< A: [rank, column of in]
  Tensor up;    ///< B, transposed: [rank, column of out]
};

/// The low-rank change of a linear layer that may be several targets fused (their outputs are
/// concatenated; models/common/layers.hpp). With x [row, in]:
///   hidden = x·Aᵀ, y += hidden·(factor·B)ᵀ
/// where A has the rows of all targets, whose ranks may differ, and B is block diagonal. Products
/// are of dtype.
class Adapter {
 public:
  /// parts: the index in `targets` of each part of the layer, in the order of outputs; −1: none.
  Adapter(const std::vector<int>& parts, std::span<const LoraTarget> targets, std::int64_t in,
          std::int64_t out_of_part, DType dtype, Device device, const Numerics& numerics);

  /// What the layer computes with from now on. values: of all targets, with all columns.
  void set(std::span<const LoraValues> values);

  std::int64_t outputs() const { return out_of_part_; }  ///< of each part
  /// A target of this layer: columns [first_hidden, first_hidden + rank) of `hidden` belong to it.
  struct Part {
    int target;
    std::int64_t first_output, first_hidden, rank;
    double factor;
  };
  const std::vector<Part>& parts() const { return parts_; }

  Tensor hidden(const Tensor& x, std::int64_t all_rows) const { return down_(x, none, all_rows); }
  /// The change of y [..., all outputs].
  Tensor change(const Tensor& hidden, std::int64_t all_rows) const {
    return up_(hidden, none, all_rows);
  }
  /// The gradient of hidden for that of y.
  Tensor hidden_gradient(const Tensor& d, std::int64_t all_rows) const {
    return up_transposed_(d, none, all_rows);
  }
  /// dx += the gradient of x for that of hidden.
  void add_input_gradient(const Tensor& d_hidden, Tensor& dx, std::int64_t all_rows) const;

 private:
  static constexpr ops::Activation none = ops::Activation::none;
  ops::Linear linear(const Tensor& values) const;

  std::vector<Part> parts_;
  std::int64_t in_, out_, out_of_part_, ranks_ = 0;  // ranks_: of all parts together
  DType dtype_;
  Device device_;
  Numerics numerics_;
  ops::Linear down_, down_transposed_, up_, up_transposed_;
};

}  // namespace reelmesh
