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

void TrainedWeights::add(TrainedMatrix matrix, Shape shape) {
  by_name_.emplace(matrix.name, matrices_.size());
  matrices_.push_back(std::move(matrix));
  shapes_.push_back(std::move(shape));
}

}  // namespace reelmesh
