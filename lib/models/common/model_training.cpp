#include "models/common/model_training.hpp"

#include <algorithm>

namespace reelmesh {

Tensor ModelTraining::initial(const Checkpoint& checkpoint, std::size_t matrix) const {
  const TrainedMatrix& found = found_.matrices[matrix];
  return checkpoint.on(checkpoint.device().host())
      .load(found.name, found_.shapes[matrix], DType::float32)
      .reshape({found.rows, found.columns});
}

void ModelTraining::set_parameters_together(const Checkpoint& checkpoint,
                                            const MatrixValues& values) const {
  const Checkpoint given = checkpoint.with_values([&](const std::string& name, const Shape&) {
    const auto found = found_.by_name.find(name);
    expect(found != found_.by_name.end(), "{} is no parameter", name);
    return values(found->second, 1).front();
  });
  for (const auto& set : found_.setters) set(given);
}

void ModelTraining::set_adapters(std::span<const LoraValues> values) const {
  for (const auto& layer : found_.adapted) layer->adapter->set(values);
}

std::size_t ModelTraining::Found::add(TrainedMatrix matrix, Shape stored) {
  by_name.emplace(matrix.name, matrices.size());
  matrices.push_back(std::move(matrix));
  shapes.push_back(std::move(stored));
  return matrices.size() - 1;
}

LayerMaker::LayerMaker(const Checkpoint& weights, DType dtype, const WeightPlacement& placement,
                       ModelTraining* training)
    : weights_(weights),
      dtype_(dtype),
      placement_(placement),
      training_(training),
      stream_(placement),
      beside_(placement) {}

namespace {

// Rows [begin, begin + count) of these; null of null.
std::shared_ptr<const Float8Rows> rows_of(const std::shared_ptr<const Float8Rows>& all,
                                          std::int64_t begin, std::int64_t count) {
  if (all == nullptr) return nullptr;
  Float8Rows rows{.values = all->values, .factors = {}, .read = {}};
  if (all->factors.empty()) return std::make_shared<const Float8Rows>(std::move(rows));
  rows.factors.assign(all->factors.begin() + begin, all->factors.begin() + begin + count);
  rows.read = [all, begin](std::int64_t first, std::int64_t some, std::byte* into) {
    all->read(begin + first, some, into);
  };
  return std::make_shared<const Float8Rows>(std::move(rows));
}

}  // namespace

std::vector<LinearParameters> LayerMaker::Made::parameters(const Checkpoint& weights,
                                                           bool bias) const {
  LinearParameters all = linear_parameters(weights, names, in, out, dtype, bias, options.stored);
  if (const std::int64_t channels = options.channels_first; channels > 0) {
    const std::int64_t pixels = out / channels;
    if (bias) all.bias = channel_first(all.bias, channels);
    const auto read = all.weight.read;
    const std::int64_t size = size_of(dtype);
    all.weight.float8 = nullptr;
    all.weight.read = [read, channels, pixels, size](std::int64_t first, std::int64_t count,
                                                     void* into, std::int64_t stride) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = first + i;
        read(row % pixels * channels + row / pixels, 1,
             static_cast<std::byte*>(into) + i * stride * size, stride);
      }
    };
  }
  std::vector<LinearParameters> pieces;
  std::int64_t begin = 0;
  for (const std::int64_t count : options.pieces) {
    LinearParameters piece = all;
    piece.weight.out = count;
    piece.weight.read = [read = all.weight.read, begin](std::int64_t first, std::int64_t some,
                                                        void* into, std::int64_t stride) {
      read(begin + first, some, into, stride);
    };
    piece.weight.float8 = rows_of(all.weight.float8, begin, count);
    if (bias) piece.bias = all.bias.rows(begin, count);
    pieces.push_back(piece);
    begin += count;
  }
  if (pieces.empty()) pieces.push_back(all);
  return pieces;
}

WeightStream* LayerMaker::stream(Residing residing) {
  switch (residing) {
    case Residing::streamed:
      return &stream_;
    case Residing::beside:
      return &beside_;
    case Residing::kept:
      return nullptr;
  }
  return nullptr;
}

LinearLayer LayerMaker::linear(const std::vector<std::string>& names, std::int64_t in,
                               std::int64_t out, const LinearOptions& options) {
  Made made{names, in, out, options, options.dtype.value_or(dtype_)};
  for (LinearParameters& piece : made.parameters(weights_, true)) {
    // Values that a training changes are not of 8 bits.
    if (training_ != nullptr && !training_->lora()) piece.weight.float8 = nullptr;
    WeightStream* passes = stream(options.residing);
    made.products.push_back(passes != nullptr ? passes->add(piece.weight, piece.bias)
                                              : ops::Linear(piece.weight, piece.bias));
  }
  if (training_ == nullptr) return LinearLayer(std::move(made.products));
  const std::shared_ptr<TrainedLinear> trained = made.trained = this->trained(made);
  trained->again = made.products;
  trained->backward.resize(made.products.size());
  trained->number = made_.size();
  if (training_->records_uses) {
    trained->uses = &training_->uses;
    for (std::size_t i = 0; i < made.products.size(); ++i) {
      trained->backward[i] = backward(made, i);
    }
  }
  made_.push_back(made);
  return LinearLayer(std::move(made.products), trained);
}

std::shared_ptr<TrainedLinear> LayerMaker::trained(const Made& made) {
  const std::int64_t in = made.in, out = made.out;
  const LinearOptions& options = made.options;
  auto layer = std::make_shared<TrainedLinear>();
  layer->channels_first = options.channels_first;
  if (!training_->lora()) {
    layer->by_rows = out >= in;  // what is gathered is not wider than what is cut
    for (const std::string& name : made.names) {
      const Shape stored = options.stored.empty() ? Shape{out, in} : options.stored;
      const std::size_t weight = found_.add({name + ".weight", out, in, layer->by_rows}, stored);
      layer->parameters.push_back({weight, found_.add({name + ".bias", 1, out}, {out})});
    }
    return layer;
  }
  if (!options.takes_lora) return layer;
  std::vector<int> parts;
  for (const std::string& name : made.names) {
    parts.push_back(-1);
    const std::optional<LoraTarget> target = training_->lora()->target(name, in, out);
    if (!target) continue;
    parts.back() = static_cast<int>(found_.targets.size());
    found_.targets.push_back(*target);
    found_.add({target->module + ".lora_A", target->rank, in}, {});
    found_.add({target->module + ".lora_B", target->rank, out}, {});
  }
  if (std::ranges::count(parts, -1) == std::ssize(parts)) return layer;
  layer->adapter =
      std::make_unique<Adapter>(parts, found_.targets, in, out, made.dtype, weights_.device(),
                                weights_.numerics(), training_->dropout_);
  found_.adapted.push_back(layer);
  return layer;
}

Tensor LayerMaker::parameter(TrainedMatrix matrix, const Shape& stored,
                             const std::function<Tensor(const Checkpoint&)>& load) {
  Tensor x = load(weights_);
  if (training_ == nullptr || training_->lora()) return x;
  Tape::make_parameter(x, found_.add(std::move(matrix), stored));
  found_.setters.push_back([x, load](const Checkpoint& from) {
    Tensor values = x;
    values.copy_from(load(from));
  });
  return x;
}

Affine LayerMaker::norm(const std::string& name, std::int64_t channels,
                        std::optional<DType> dtype) {
  return {vector(name + ".weight", channels, dtype), vector(name + ".bias", channels, dtype)};
}

Tensor LayerMaker::vector(const std::string& name, std::int64_t channels,
                          std::optional<DType> dtype) {
  const Shape shape{channels};
  return parameter({name, 1, channels}, shape,
                   [=, type = dtype.value_or(dtype_)](const Checkpoint& from) {
                     return from.load(name, shape, type).to(DType::float32);
                   });
}

Tensor LayerMaker::table(const std::string& name, const Shape& stored, std::optional<DType> dtype) {
  const std::int64_t channels = stored.back(), rows = numel(stored) / channels;
  return parameter({name, rows, channels}, stored,
                   [=, type = dtype.value_or(dtype_)](const Checkpoint& from) {
                     return from.load(name, stored, type).reshape({rows, channels});
                   });
}

// Only CPUs need the weight once more, transposed.
ops::Linear LayerMaker::backward(const Made& made, std::size_t piece) {
  WeightStream* passes = stream(made.options.residing);
  const ops::Linear& product = made.products[piece];
  if (weights_.device().is_cuda()) {
    return (passes != nullptr ? passes->again(product) : product).backward();
  }
  const ops::WeightRows transposed = ops::transposed(made.parameters(weights_, false)[piece].weight,
                                                     placement_.residence != Residence::host);
  return passes != nullptr ? passes->add(transposed, {}) : ops::Linear(transposed);
}

void LayerMaker::Made::set_together(const Checkpoint& weights) {
  const std::vector<LinearParameters> pieces = parameters(weights, true);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    products[i].set_together(pieces[i].weight, pieces[i].bias);
    // On GPUs the gradient of the input comes from the same values.
    ops::Linear& backward = trained->backward[i];
    if (weights.device().is_cuda() || backward.in_features() == 0) continue;
    backward.set_together(ops::transposed(pieces[i].weight, true));
  }
}

// Without the numbers of blocks.
std::vector<std::string> LayerMaker::possible_targets() const {
  std::vector<std::string> ends;
  for (const Made& made : made_) {
    for (const std::string& name : made.names) {
      const std::size_t number = name.find_first_of("0123456789");
      const std::size_t dot = name.find('.', std::min(number, name.size()));
      const std::string end = dot == std::string::npos ? name : name.substr(dot + 1);
      if (made.options.takes_lora && std::ranges::find(ends, end) == ends.end()) {
        ends.push_back(end);
      }
    }
  }
  return ends;
}

void LayerMaker::finish() {
  if (training_ == nullptr) return;
  if (training_->lora()) {
    training_->lora()->require_all_used(found_.targets, possible_targets());
  }
  training_->found_ = std::move(found_);
  if (training_->records_uses) return;
  for (const LayerUse& use : training_->uses) {
    const Made& made = made_.at(use.layer);
    WeightStream* passes = stream(made.options.residing);
    if (use.kind == LayerUse::Kind::backward) {
      made.trained->backward[use.piece] = backward(made, use.piece);
    } else if (passes != nullptr) {
      made.trained->again[use.piece] = passes->again(made.products[use.piece]);
    }
  }
  if (training_->lora()) return;
  for (const Made& made : made_) {
    training_->found_.setters.push_back(
        [layer = made](const Checkpoint& from) mutable { layer.set_together(from); });
  }
}

}  // namespace reelmesh
