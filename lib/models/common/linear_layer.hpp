#pragma once
// Linear layers of models, with their gradients if they, or LoRAs of them, are trained.
#include <memory>
#include <vector>

#include "models/common/adapter.hpp"
#include "tensor/tape.hpp"

namespace reelmesh {

/// What a step of a training takes of a layer beside its first use: to compute a block again, or
/// the gradient of its input.
struct LayerUse {
  enum class Kind { again, backward };
  std::size_t layer = 0;  ///< in the order in which they are made
  std::size_t piece = 0;  ///< of the layer's outputs
  Kind kind = Kind::again;
};

/// What a layer has in a model that is trained.
struct TrainedLinear {
  std::size_t number = 0;  ///< of the layer
  /// Of each piece the product once more, and that which gives the gradient of its input; from the
  /// sources of weights that such uses have.
  std::vector<ops::Linear> again, backward;
  /// Numbers of the parameters of each of the layers that are fused; none: they are constant.
  struct Parameters {
    std::size_t weight = 0, bias = 0;
  };
  std::vector<Parameters> parameters;
  bool by_rows = false;                   ///< ranks divide the rows of weights (TrainedMatrix)
  std::int64_t channels_first = 0;        ///< LayerMaker::LinearOptions
  std::unique_ptr<Adapter> adapter;       ///< or null
  std::vector<LayerUse>* uses = nullptr;  ///< to be recorded here, unless null

  bool has_parameters() const { return adapter != nullptr || !parameters.empty(); }
  void note(std::size_t piece, LayerUse::Kind kind) const {
    if (uses != nullptr) uses->push_back({number, piece, kind});
  }
};

/// y = activation(x·Wᵀ + b), as ops::Linear, changed by a LoRA while that is trained. Gradients: of
/// x, of weight and bias if they are parameters, and of the LoRA: sums over all tokens, which are
/// the rows of x (Tape::Rows). The gradient of a weight is added where a rank has columns of what
/// is wider, and all of the other: with by_rows each rank has rows.
class LinearLayer {
 public:
  static constexpr ops::Activation none = ops::Activation::none;

  LinearLayer() = default;
  /// pieces: products that give consecutive outputs.
  explicit LinearLayer(std::vector<ops::Linear> pieces,
                       std::shared_ptr<const TrainedLinear> trained = nullptr)
      : products_(std::move(pieces)), trained_(std::move(trained)) {}

  /// As ops::Linear, of a layer of one piece. The sum is not rounded before the activation, unless
  /// gradients are computed from it.
  Tensor operator()(const Tensor& x, ops::Activation activation = none,
                    std::int64_t all_rows = ops::Linear::usual_rows) const;
  /// Of each piece, without an activation.
  std::vector<Tensor> pieces(const Tensor& x, std::int64_t all_rows) const;
  /// Of rows that every rank has, such as the tokens of a caption.
  Tensor of_whole(const Tensor& x, ops::Activation activation = none) const;
  /// Of a row that every rank has, such as the embedding of the time, whose gradient is float32 on
  /// the host; without a LoRA.
  Tensor of_row(const Tensor& x, ops::Activation activation = none) const;

  std::int64_t out_features() const { return products_.front().out_features(); }

 private:
  enum class Rows { of_tokens, whole };
  std::vector<Tensor> sums(const Tensor& x, std::int64_t all_rows, Rows rows) const;
  Tensor activated(const Tensor& x, ops::Activation activation, std::int64_t all_rows,
                   Rows rows) const;

  std::vector<ops::Linear> products_;
  std::shared_ptr<const TrainedLinear> trained_;  ///< null: computes only
};

}  // namespace reelmesh
