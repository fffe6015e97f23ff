#include "models/common/trained_weights.hpp"

namespace reelmesh {

void TrainedWeights::add_linear(const std::string& name, std::int64_t in, std::int64_t out,
                                bool by_outputs, Shape shape) {
  if (shape.empty()) shape = {out, in};
  add({name + ".weight", out, in, by_outputs}, std::move(shape));
  add_vector(name + ".bias", out);
}

void TrainedWeights::add_norm(const std::string& name, std::int64_t channels) {
  for (const char* part : {".weight", ".bias"}) add_vector(name + part, channels);
}

void TrainedWeights::add_vector(const std::string& name, std::int64_t channels) {
  add({name, 1, channels}, {channels});
}

void TrainedWeights::add_table(const std::string& name, std::int64_t rows, std::int64_t channels) {
  add({name, rows, channels}, {rows, channels});
}

Tensor TrainedWeights::initial(const Checkpoint& checkpoint, std::size_t index) const {
  const TrainedMatrix& matrix = matrices_[index];
  return checkpoint.on(checkpoint.device().host())
      .load(matrix.name, shapes_[index], DType::float32)
      .reshape({matrix.rows, matrix.columns});
}

Checkpoint TrainedWeights::with_values(const Checkpoint& checkpoint,
                                       const MatrixValues& values) const {
  const Checkpoint own = checkpoint.on(checkpoint.device().host());
  return checkpoint.with_values([this, own, &values](const std::string& name, const Shape& shape) {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? own.load(name, shape, DType::float32)
                                   : values(found->second, 1).front();
  });
}

void TrainedWeights::add(TrainedMatrix matrix, Shape shape) {
  by_name_.emplace(matrix.name, matrices_.size());
  matrices_.push_back(std::move(matrix));
  shapes_.push_back(std::move(shape));
}

}  // namespace reelmesh
