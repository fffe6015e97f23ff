#include "models/common/trained_model.hpp"

#include "ops/onednn.hpp"
#include "tensor/ledger.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {
namespace {

// While it exists LoRAs drop inputs as for this sample.
class DroppingInputs {
 public:
  DroppingInputs(LoraDropout& dropout, std::int64_t sample) : dropout_(dropout) {
    dropout_.sample = sample;
  }
  ~DroppingInputs() { dropout_.sample.reset(); }
  DroppingInputs(const DroppingInputs&) = delete;
  DroppingInputs& operator=(const DroppingInputs&) = delete;

 private:
  LoraDropout& dropout_;
};

class PreparedTraining final : public Trainable::Prepared {
 public:
  PreparedTraining(const TrainableDenoiser& model, const DenoiseTask& task,
                   const std::optional<IddpmLoss>& loss, bool recomputes_blocks,
                   LoraDropout& dropout)
      : model_(model),
        dropout_(dropout),
        clip_(model.prepare_training(task)),
        latents_(numel(task.latents)),
        loss_(loss),
        recomputes_blocks_(recomputes_blocks) {}

  const TokenColumns& columns() const override { return clip_->columns(); }

  ops::ExactSum gradient_together(const TrainingSample& sample, const TakeGradient& take) override {
    Tape tape(take, recomputes_blocks_);
    const DroppingInputs dropping(dropout_, sample.number);
    Tensor prediction, gradient;
    {
      const Tape::Scope recording(&tape);
      prediction = model_.predict_together(*clip_, sample);
    }
    const ops::ExactSum losses = loss(sample, prediction, &gradient);
    const Tensor d = gradient.on(prediction.device());
    tape.backward(prediction, d);
    return losses;
  }

  ops::ExactSum losses_together(const TrainingSample& sample) override {
    return loss(sample, model_.predict_together(*clip_, sample), nullptr);
  }

 private:
  ops::ExactSum loss(const TrainingSample& sample, const Tensor& prediction,
                     Tensor* gradient) const {
    return training_loss(loss_, sample, prediction.on(prediction.device().host()),
                         latents_ * sample.target.shape(1), gradient);
  }

  const TrainableDenoiser& model_;
  LoraDropout& dropout_;
  std::unique_ptr<const TrainableDenoiser::Clip> clip_;
  std::int64_t latents_;  // of the clip, of one channel
  const std::optional<IddpmLoss>& loss_;
  bool recomputes_blocks_;
};

}  // namespace

TrainedModel::TrainedModel(const Checkpoint& weights, DType dtype, const WeightPlacement& placement,
                           const TrainingMode& mode, std::optional<IddpmLoss> loss,
                           const Make& make)
    : checkpoint_(weights),
      loss_(std::move(loss)),
      recomputes_blocks_(mode.recomputes_blocks),
      training_(mode.lora) {
  record_uses(dtype, make);
  model_ = make(checkpoint_, placement, training_);
}

// In a dry run of a step on one rank. Which layers it uses does not depend on its size.
void TrainedModel::record_uses(DType dtype, const Make& make) {
  const Device device = Device::shapes(checkpoint_.device().is_cuda());
  const Ledger* outer = Ledger::active();
  const Precision precision{
      .tensors = dtype,
      .products = outer != nullptr ? outer->precision().products : ops::compute_dtype(dtype),
      .on_gpu = device.is_cuda()};
  Ledger ledger(precision);
  const DryRun run(ledger);
  training_.records_uses = true;
  {
    const auto model =
        make(Checkpoint::of_shapes().on(device, checkpoint_.numerics()), {}, training_);
    training_.set_adapters({});
    const auto [task, sample] = model->example(device.host());
    PreparedTraining(*model, task, loss_, recomputes_blocks_, training_.dropout())
        .gradient_together(sample, [](std::size_t, const Tensor&) {});
  }
  training_.records_uses = false;
}

void TrainedModel::set_together(const MatrixValues& values) {
  if (training_.lora()) {
    const std::vector<Tensor> all = values(0, training_.matrices().size());
    std::vector<LoraValues> of_targets;
    for (std::size_t i = 0; i < all.size(); i += 2) of_targets.push_back({all[i], all[i + 1]});
    return training_.set_adapters(of_targets);
  }
  const PurposeScope purpose(Purpose::weights);
  training_.set_parameters_together(checkpoint_, values);
}

std::unique_ptr<Trainable::Prepared> TrainedModel::prepare(const DenoiseTask& task) const {
  return std::make_unique<PreparedTraining>(*model_, task, loss_, recomputes_blocks_,
                                            training_.dropout());
}

}  // namespace reelmesh
