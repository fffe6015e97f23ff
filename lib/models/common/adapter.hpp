#pragma once
// Low-rank changes of linear layers that are being trained (LoRA, Hu et al. 2021).
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/linear.hpp"
#include "tensor/tape.hpp"

namespace reelmesh {

/// A linear layer with a LoRA: its weight [out, in] is changed by factor()·B·A.
struct LoraTarget {
  std::string module;  ///< "transformer_blocks.0.attn1.to_q"
  std::int64_t in = 0, out = 0, rank = 0;
  double alpha = 0;

  double factor() const { return alpha / static_cast<double>(rank); }
};

/// Dropout of what LoRAs read while gradients are computed, as lora_dropout of PEFT: each target
/// has a mask of its own, of which random numbers depend on seed + sample, the target's module and
/// the place in all rows of the input.
struct LoraDropout {
  double probability = 0;
  std::uint64_t seed = 0;  ///< train.seed
  std::optional<std::int64_t> sample =
      {};  ///< whose gradient is computed; none: nothing is dropped
};

/// Values of one target, or their gradient; float32 on the host. For some columns or for all.
struct LoraValues {
  Tensor down;  ///< A: [rank, column of in]
  Tensor up;    ///< B, transposed: [rank, column of out]
};

/// The low-rank change of a linear layer that may be several targets fused (their outputs are
/// concatenated; models/common/layers.hpp). With x [row, in]:
///   hidden = x·Aᵀ, y += hidden·(factor·B)ᵀ
/// where A has the rows of all targets, whose ranks may differ, and B is block diagonal. With
/// dropout x is that of each target. Products are of dtype.
class Adapter {
 public:
  /// parts: the index in `targets` of each part of the layer, in the order of outputs; −1: none.
  /// dropout: whose sample changes.
  Adapter(const std::vector<int>& parts, std::span<const LoraTarget> targets, std::int64_t in,
          std::int64_t out_of_part, DType dtype, Device device, const Numerics& numerics,
          std::shared_ptr<const LoraDropout> dropout);

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

  // rows: of x, and of its gradient; null: every rank has all.
  Tensor hidden(const Tensor& x, const TokenRows* rows, std::int64_t all_rows) const;
  /// The change of y [..., all outputs].
  Tensor change(const Tensor& hidden, std::int64_t all_rows) const {
    return up_(hidden, none, all_rows);
  }
  /// The gradient of hidden for that of y.
  Tensor hidden_gradient(const Tensor& d, std::int64_t all_rows) const {
    return up_transposed_(d, none, all_rows);
  }
  /// dx += the gradient of x for that of hidden.
  void add_input_gradient(const Tensor& d_hidden, Tensor& dx, const TokenRows* rows,
                          std::int64_t all_rows) const;
  /// The gradient of A, [rank of all targets, column of x]: d_hidden and x have all rows, x columns
  /// from first_column on.
  Tensor down_gradient(const Tensor& d_hidden, const Tensor& x, std::int64_t first_column) const;

 private:
  static constexpr ops::Activation none = ops::Activation::none;
  // Rows of A that read the same x: those of all targets, or with dropout of each.
  struct Input {
    std::string module;  // with dropout
    std::int64_t first_hidden, ranks;
    ops::Linear down, down_transposed;
  };
  ops::Linear linear(const Tensor& values) const;
  Tensor dropped(const Input& input, const Tensor& x, const TokenRows* rows,
                 std::int64_t first_column = 0) const;

  std::vector<Part> parts_;
  std::vector<Input> inputs_;
  std::int64_t in_, out_, out_of_part_, ranks_ = 0;  // ranks_: of all parts together
  DType dtype_;
  Device device_;
  Numerics numerics_;
  std::shared_ptr<const LoraDropout> dropout_;
  ops::Linear up_, up_transposed_;
};

}  // namespace reelmesh
