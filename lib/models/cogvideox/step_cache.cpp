#include "models/cogvideox/step_cache.hpp"

#include <cmath>

#include "models/cogvideox/positions.hpp"

namespace reelmesh {
namespace {

using Values = std::vector<float>;

Values tensor_values(const Tensor& tensor) {
  const auto values = tensor.span<float>();
  return {values.begin(), values.end()};
}

// A small linear layer.
class Layer {
 public:
  Layer(const Checkpoint& weights, const std::string& name, std::int64_t in, std::int64_t out)
      : in_(static_cast<std::size_t>(in)),
        weight_(tensor_values(weights.load(name + ".weight", {out, in}, DType::float32))),
        bias_(tensor_values(weights.load(name + ".bias", {out}, DType::float32))) {}

  Values operator()(const Values& x) const {
    constexpr std::size_t together = 8;  // rows, whose sums do not wait for each other
    Values y(bias_.size());
    for (std::size_t first = 0; first < y.size(); first += together) {
      const std::size_t rows = std::min(together, y.size() - first);
      double sums[together] = {};
      for (std::size_t i = 0; i < in_; ++i) {
        for (std::size_t r = 0; r < rows; ++r) {
          sums[r] +=
              static_cast<double>(weight_[(first + r) * in_ + i]) * static_cast<double>(x[i]);
        }
      }
      for (std::size_t r = 0; r < rows; ++r) {
        y[first + r] = static_cast<float>(sums[r] + static_cast<double>(bias_[first + r]));
      }
    }
    return y;
  }

 private:
  std::size_t in_;
  Values weight_, bias_;
};

// linear_2(silu(linear_1(sinusoid of `number`)))
class Embedding {
 public:
  Embedding(const Checkpoint& weights, const CogVideoXConfig& config, const std::string& name,
            std::int64_t channels)
      : config_(config),
        channels_(channels),
        first_(weights, name + ".linear_1", channels, config.time_channels),
        second_(weights, name + ".linear_2", config.time_channels, config.time_channels) {}

  Values operator()(std::int64_t number) const {
    Values hidden = first_(tensor_values(timestep_embedding(number, channels_, config_)));
    for (float& value : hidden) value = value / (1.0F + std::exp(-value));
    return second_(hidden);
  }

 private:
  const CogVideoXConfig& config_;
  std::int64_t channels_;
  Layer first_, second_;
};

}  // namespace

std::optional<CacheCoefficients> known_cache_coefficients(const CogVideoXConfig& c) {
  const auto is = [&](std::int64_t heads, std::int64_t layers, bool rotary,
                      std::int64_t patch_frames) {
    return c.heads == heads && c.layers == layers && c.head_channels == 64 && c.rotary == rotary &&
           c.patch.frames == patch_frames;
  };
  if (is(30, 30, false, 1) && !c.takes_image()) {  // 2b
    return CacheCoefficients(
        {-3.10658903e+01, 2.54732368e+01, -5.92380459e+00, 1.75769064e+00, -3.61568434e-03});
  }
  if (is(48, 42, true, 1)) {  // 5b, 5b-I2V
    return CacheCoefficients(
        {-1.53880483e+03, 8.43202495e+02, -1.34363087e+02, 7.97131516e+00, -5.23162339e-02});
  }
  if (!is(48, 42, true, 2)) return std::nullopt;
  if (c.takes_image()) {  // 1.5-5b-I2V
    return CacheCoefficients(
        {1.22842302e+02, -1.04088754e+02, 2.62981677e+01, -3.06009921e-01, 3.71213220e-02});
  }
  return CacheCoefficients(
      {2.50210439e+02, -1.65061612e+02, 3.57804877e+01, -7.81551492e-01, 3.58559703e-02});
}

std::vector<double> time_embedding_distances(const Checkpoint& weights,
                                             const CogVideoXConfig& config,
                                             std::span<const std::int64_t> timesteps) {
  const Embedding of_time(weights, config, "time_embedding", config.channels());
  Values offset(static_cast<std::size_t>(config.time_channels), 0.0F);
  if (config.ofs_channels > 0) {
    offset = Embedding(weights, config, "ofs_embedding",
                       config.ofs_channels)(CogVideoXConfig::ofs_value);
  }
  std::vector<double> distances;
  Values before;
  for (const std::int64_t timestep : timesteps) {
    Values now = of_time(timestep);
    for (std::size_t i = 0; i < now.size(); ++i) now[i] += offset[i];
    double changes = 0, all = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      changes += static_cast<double>(std::abs(now[i] - before[i]));
      all += static_cast<double>(std::abs(before[i]));
    }
    distances.push_back(before.empty() ? 0 : changes / all);
    before = std::move(now);
  }
  return distances;
}

}  // namespace reelmesh
