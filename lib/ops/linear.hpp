#pragma once
#include <functional>

#include "ops/onednn.hpp"
#include "tensor/numerics.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

enum class Activation { none, silu, gelu_tanh };

/// A weight [out, in] of a floating type that need not lie in memory as a whole.
struct WeightRows {
  std::int64_t in = 0, out = 0;
  DType dtype = DType::float32;
  /// Writes rows [first, first + count) to `into`, `stride` elements apart (stride ≥ in). Called
  /// from several threads at once.
  std::function<void(std::int64_t first, std::int64_t count, void* into, std::int64_t stride)> read;
  Device device;  ///< where the products are to be computed
  Numerics numerics;
};

/// y = activation(x·Wᵀ + b). The weights are packed once, here, in their own type; where products
/// are computed in a wider one (compute_dtype), each tile is widened when its turn comes. Sums are
/// float32; the result is rounded once (on a device silu is applied to the rounded sum). A row's
/// bits depend on that row only.
class Linear {
 public:
  Linear() = default;
  /// weight: [out, in]; bias: [out], or empty for none. Floating types; the weight's type is the
  /// type of the products, and its device theirs.
  explicit Linear(const Tensor& weight, const Tensor& bias = {}, const Numerics& numerics = {});
  /// Each row is read once, and packed while it is near: there is no plain copy of the weight.
  explicit Linear(const WeightRows& weight, const Tensor& bias = {});

  /// x: [..., in] of the weight's type → [..., out] of the same type.
  Tensor operator()(const Tensor& x, Activation activation = Activation::none) const;

  std::int64_t in_features() const { return in_; }
  std::int64_t out_features() const { return out_; }
  std::int64_t bytes() const { return packed_.bytes() + bias_.bytes(); }

 private:
  struct Tile {
    std::int64_t column;  ///< first output column
    std::int64_t columns;
    std::size_t product;  ///< index into products_
    std::int64_t offset;  ///< of its packed weights, in elements
  };
  std::int64_t in_ = 0, out_ = 0;
  DType dtype_ = DType::float32, compute_ = DType::float32;
  Numerics numerics_;
  Tensor bias_;    ///< float32 [out] or empty; on a device of the weight's type
  Tensor packed_;  ///< [element], in the order of oneDNN's weights of the type compute_; on a
                   ///< device the weight [out, in]
  std::vector<TileProduct> products_;
  std::vector<Tile> tiles_;
};

}  // namespace reelmesh::ops
