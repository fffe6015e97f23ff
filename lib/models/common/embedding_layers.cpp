#include "models/common/embedding_layers.hpp"

#include <algorithm>
#include <cmath>

namespace reelmesh {
namespace {

std::vector<float> numbers_of(const Tensor& tensor) {
  const auto values = tensor.span<float>();
  return {values.begin(), values.end()};
}

}  // namespace

EmbeddingLayers::EmbeddingLayers(const Checkpoint& weights, const std::string& name,
                                 std::int64_t in, std::int64_t out) {
  const auto layer = [&](const std::string& part, std::int64_t inputs) {
    return Layer{static_cast<std::size_t>(inputs),
                 numbers_of(weights.load(part + ".weight", {out, inputs}, DType::float32)),
                 numbers_of(weights.load(part + ".bias", {out}, DType::float32))};
  };
  first_ = layer(name + ".linear_1", in);
  second_ = layer(name + ".linear_2", out);
}

std::vector<float> EmbeddingLayers::Layer::operator()(const std::vector<float>& x) const {
  constexpr std::size_t together = 8;  // rows, whose sums do not wait for each other
  std::vector<float> y(bias.size());
  for (std::size_t row = 0; row < y.size(); row += together) {
    const std::size_t rows = std::min(together, y.size() - row);
    double sums[together] = {};
    for (std::size_t i = 0; i < in; ++i) {
      for (std::size_t r = 0; r < rows; ++r) {
        sums[r] += static_cast<double>(weight[(row + r) * in + i]) * static_cast<double>(x[i]);
      }
    }
    for (std::size_t r = 0; r < rows; ++r) {
      y[row + r] = static_cast<float>(sums[r] + static_cast<double>(bias[row + r]));
    }
  }
  return y;
}

std::vector<float> EmbeddingLayers::operator()(const Tensor& x) const {
  std::vector<float> hidden = first_(numbers_of(x));
  for (float& value : hidden) value = value / (1.0F + std::exp(-value));
  return second_(hidden);
}

std::vector<double> relative_changes(const std::vector<std::vector<float>>& vectors) {
  std::vector<double> distances;
  for (std::size_t v = 0; v < vectors.size(); ++v) {
    double changes = 0, all = 0;
    for (std::size_t i = 0; v > 0 && i < vectors[v].size(); ++i) {
      changes += static_cast<double>(std::abs(vectors[v][i] - vectors[v - 1][i]));
      all += static_cast<double>(std::abs(vectors[v - 1][i]));
    }
    distances.push_back(v == 0 ? 0 : changes / all);
  }
  return distances;
}

}  // namespace reelmesh
