#pragma once
// What of a model is trained, and what its layers need for that: found while the model is made.
#include <map>

#include "layout/weight_stream.hpp"
#include "models/common/layers.hpp"
#include "models/common/linear_layer.hpp"
#include "models/common/trainable.hpp"

namespace reelmesh {

/// The parameters of a model, or the LoRAs of its layers. Filled by LayerMaker::finish().
class ModelTraining {
 public:
  /// Without a LoRA all parameters are trained.
  explicit ModelTraining(const std::optional<LoraShape>& lora)
      : lora_(lora),
        dropout_(std::make_shared<LoraDropout>(lora ? lora->dropout : LoraDropout{})) {}

  const std::optional<LoraShape>& lora() const { return lora_; }
  const std::vector<TrainedMatrix>& matrices() const { return found_.matrices; }
  const std::vector<LoraTarget>& targets() const { return found_.targets; }
  const Shape& stored_shape(std::size_t matrix) const { return found_.shapes[matrix]; }

  /// A parameter's value in a checkpoint: float32 [row, column] on the host.
  Tensor initial(const Checkpoint& checkpoint, std::size_t matrix) const;
  /// Replaces the values of all parameters in the layers of the model, in their memory. checkpoint:
  /// of which it was made. Collective over the ranks that give the values, and over those of its
  /// placement unless weights are replicated.
  void set_parameters_together(const Checkpoint& checkpoint, const MatrixValues& values) const;
  /// Values of all matrices of a LoRA, whole.
  void set_adapters(std::span<const LoraValues> values) const;

  /// What a step uses of which layers, in its order, after the first pass through all layers in the
  /// order in which they are made. As a dry run recorded it; empty in that run, whose layers have
  /// all that they may need.
  std::vector<LayerUse> uses;
  bool records_uses = false;

  /// Of the LoRAs; its sample is set while a gradient is computed.
  LoraDropout& dropout() const { return *dropout_; }

 private:
  friend class LayerMaker;
  struct Found {
    std::vector<TrainedMatrix> matrices;
    std::vector<Shape> shapes;
    std::map<std::string, std::size_t> by_name;
    std::vector<LoraTarget> targets;
    std::vector<std::shared_ptr<TrainedLinear>> adapted;
    /// Each replaces the values of a layer by those of a checkpoint.
    std::vector<std::function<void(const Checkpoint&)>> setters;

    /// → the number of the parameter.
    std::size_t add(TrainedMatrix matrix, Shape stored);
  };

  std::optional<LoraShape> lora_;
  std::shared_ptr<LoraDropout> dropout_;  // which layers share
  Found found_;
};

/// Makes the layers of a model from a checkpoint, in the order in which a step uses them first.
class LayerMaker {
 public:
  /// training: of a model that is trained, otherwise null. All must outlive the object. Collective
  /// over placement.group, unless weights are replicated.
  LayerMaker(const Checkpoint& weights, DType dtype, const WeightPlacement& placement,
             ModelTraining* training);

  /// streamed: by the placement, among the layers that a step uses one after the other; beside:
  /// likewise, among those that it uses beside these (of texts); kept: always in memory.
  enum class Residing { streamed, beside, kept };
  struct LinearOptions {
    Residing residing = Residing::streamed;
    bool takes_lora = false;          ///< it may be a target
    Shape stored = {};                ///< of the weight in checkpoints, if it is not [out, in]
    std::optional<DType> dtype = {};  ///< that it computes in, if it is not the model's
    /// Outputs of each piece, which LinearLayer::pieces() gives; none: all in one.
    std::vector<std::int64_t> pieces = {};
    /// If not 0: outputs are [pixel, channel] with so many channels in checkpoints, and [channel,
    /// pixel] of the layer.
    std::int64_t channels_first = 0;
  };
  /// Layers with the same input, fused: their outputs are concatenated. Errors as load_linears().
  LinearLayer linear(const std::vector<std::string>& names, std::int64_t in, std::int64_t out,
                     const LinearOptions& options);
  // Tensors that are parameters get other values in their memory, which a model's views of them
  // share. dtype: that values are rounded to; none: the model's.
  /// Weight and bias of a norm, as load_affine().
  Affine norm(const std::string& name, std::int64_t channels, std::optional<DType> dtype = {});
  /// A vector of a norm, by its whole name: rounded, and float32.
  Tensor vector(const std::string& name, std::int64_t channels, std::optional<DType> dtype = {});
  /// A table [row, channel], by its whole name. stored: its shape in checkpoints, [..., channel].
  Tensor table(const std::string& name, const Shape& stored, std::optional<DType> dtype = {});
  bool capturable() const { return stream_.capturable(); }
  /// To be called after all layers: makes what a step uses of them later. Error(usage) for a LoRA
  /// whose targets or patterns name no layer.
  void finish();

 private:
  struct Made {
    std::vector<std::string> names;
    std::int64_t in, out;
    LinearOptions options;
    DType dtype;
    std::vector<ops::Linear> products = {};  // of the pieces
    std::shared_ptr<TrainedLinear> trained = nullptr;

    // Of each piece.
    std::vector<LinearParameters> parameters(const Checkpoint& weights, bool bias) const;
    // Replaces the values of all products.
    void set_together(const Checkpoint& weights);
  };
  WeightStream* stream(Residing residing);
  std::shared_ptr<TrainedLinear> trained(const Made& made);
  Tensor parameter(TrainedMatrix matrix, const Shape& stored,
                   const std::function<Tensor(const Checkpoint&)>& load);
  ops::Linear backward(const Made& made, std::size_t piece);
  std::vector<std::string> possible_targets() const;

  const Checkpoint& weights_;
  DType dtype_;
  WeightPlacement placement_;
  ModelTraining* training_;
  WeightStream stream_, beside_;
  ModelTraining::Found found_;  ///< is given to the training when it is complete
  std::vector<Made> made_;      ///< of a model that is trained
};

}  // namespace reelmesh
