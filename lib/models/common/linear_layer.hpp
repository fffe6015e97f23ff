#pragma once
// Linear layers of models, with their gradients if they are trained, or change what is trained.
#include <memory>
#include <optional>
#include <vector>

#include "models/common/adapter.hpp"
#include "tensor/tape.hpp"

namespace reelmesh {

/// What a pass of a training takes of a layer beside its first use: to compute a block again, or
/// the gradient of its input.
struct LayerUse {
  enum class Kind { again, backward };
  std::size_t layer = 0;  ///< in the order in which they are made
  Kind kind = Kind::again;
};

/// What a layer has in a model that is trained.
struct TrainedLinear {
  std::size_t number = 0;  ///< of the layer
  /// The product once more, and that which gives the gradient of its input; from the sources of
  /// weights that such uses have.
  ops::Linear again, backward;
  /// Numbers of the parameters of each of the layers that are fused; none: they are constant.
  struct Parameters {
    std::size_t weight = 0, bias = 0;
  };
  std::vector<Parameters> parameters;
  bool by_rows = false;              ///< ranks divide the rows of weights (TrainedMatrix)
  std::unique_ptr<Adapter> adapter;  ///< or null
  std::vector<LayerUse>* uses = nullptr;  ///< to be recorded here, unless null

  void note(LayerUse::Kind kind) const {
    if (uses != nullptr) uses->push_back({number, kind});
  }
};

/// y = activation(x·Wᵀ + b), as ops::Linear, changed by a LoRA while that is trained. Gradients: of
/// x, of weight and bias if they are parameters, and of the LoRA: sums over all tokens, which are
/// the rows of x (Tape::Rows). The gradient of a weight is added where a rank has columns of what
/// is narrower, and all of the other: with by_rows each rank has rows.
class LinearLayer {
 public:
  LinearLayer() = default;
  explicit LinearLayer(ops::Linear product, std::shared_ptr<const TrainedLinear> trained = nullptr)
      : product_(std::move(product)), trained_(std::move(trained)) {}

  /// As ops::Linear. The sum is not rounded before the activation, unless the tape or a LoRA needs
  /// it.
  Tensor operator()(const Tensor& x, ops::Activation activation = ops::Activation::none,
                    std::int64_t all_rows = ops::Linear::usual_rows) const;
  /// The same for a row that every rank has, such as the embedding of the time; without a LoRA.
  Tensor with_all_rows(const Tensor& x, ops::Activation activation = ops::Activation::none) const;

  std::int64_t in_features() const { return product_.in_features(); }
  std::int64_t out_features() const { return product_.out_features(); }

 private:
  Tensor changed(const ops::Linear& product, const Tensor& x, Tensor* hidden,
                 std::int64_t all_rows) const;

  ops::Linear product_;
  std::shared_ptr<const TrainedLinear> trained_;  ///< null: computes only
};

}  // namespace reelmesh
