#pragma once
#include <functional>

#include "ops/onednn.hpp"
#include "tensor/numerics.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

enum class Activation { none, silu, gelu_tanh };

/// A weight [out, in] of a floating type, read by rows: it need not be in memory as a whole.
struct WeightRows {
  std::int64_t in = 0, out = 0;
  DType dtype = DType::float32;
  /// Writes rows [first, first + count) to `into`, `stride` elements apart (stride ≥ in). Called
  /// from several threads at once.
  std::function<void(std::int64_t first, std::int64_t count, void* into, std::int64_t stride)> read;
  Device device;  ///< the device that computes
  Numerics numerics;
};

/// y = activation(x·Wᵀ + b). On the CPU the constructor packs the weight in its own type; if GEMMs
/// use a wider type (compute_dtype), each tile is converted when it is used. Sums are float32; the
/// result is rounded once (on a GPU silu is applied to the rounded sum). The bits of a row depend
/// only on that row, unless Numerics::reproducible is off on a GPU.
class Linear {
 public:
  Linear() = default;
  /// weight: [out, in]; bias: [out], or empty for none. Floating types. x and y have the weight's
  /// type; computes on the weight's device.
  explicit Linear(const Tensor& weight, const Tensor& bias = {}, const Numerics& numerics = {});
  /// Reads each row once. On the CPU rows are packed as they are read, without an unpacked copy of
  /// the weight.
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
  Tensor bias_;    ///< [out] or empty; float32 on the CPU, the weight's type on a GPU
  Tensor packed_;  ///< CPU: [element], in oneDNN's layout for type compute_, stored as dtype_; GPU:
                   ///< the weight [out, in]
  std::vector<TileProduct> products_;
  std::vector<Tile> tiles_;
};

}  // namespace reelmesh::ops
