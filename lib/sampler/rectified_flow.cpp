#include "sampler/rectified_flow.hpp"

#include <cmath>

#include "base/error.hpp"
#include "sampler/cuda/steps.hpp"
#include "sampler/step_arithmetic.hpp"
#include "tensor/dispatch.hpp"

namespace reelmesh {

float shift_ratio(const VideoSize& size) {
  constexpr float base = 512 * 512;
  const auto pixels = static_cast<float>(size.height * size.width);
  const auto frames = static_cast<float>(size.frames == 1 ? 1 : size.frames / 17 * 5);
  const float ratio = std::sqrt(pixels / base) * std::sqrt(frames);
  require(std::isfinite(ratio) && ratio > 0, Status::usage,
          "sample.frames: found a clip of {} x {} x {}, expected 1 frame, or 17 or more, for the "
          "shifted timesteps of this sampler",
          size.frames, size.height, size.width);
  return ratio;
}

void check(const RectifiedFlowConfig& config) {
  require(config.num_timesteps >= 1 && config.num_timesteps <= 1'000'000, Status::data,
          "num_timesteps is {}, expected 1 to 1000000", config.num_timesteps);
  require(config.num_sampling_steps >= 1 && config.num_sampling_steps <= config.num_timesteps,
          Status::data, "num_sampling_steps is {}, expected 1 to num_timesteps",
          config.num_sampling_steps);
}

RectifiedFlow::RectifiedFlow(const RectifiedFlowConfig& config, int steps, const VideoSize& size) {
  check(config);
  require(steps >= 1 && steps <= config.num_timesteps, Status::usage,
          "sample.steps is {}, expected 1 to {}", steps, config.num_timesteps);
  const auto whole = static_cast<float>(config.num_timesteps);
  const float ratio = config.use_timestep_transform ? shift_ratio(size) : 1;
  for (int i = 0; i < steps; ++i) {
    double t = (1.0 - static_cast<double>(i) / steps) * static_cast<double>(config.num_timesteps);
    if (config.use_discrete_timesteps) t = std::nearbyint(t);
    auto shifted = static_cast<float>(t);
    if (config.use_timestep_transform) {
      const float part = shifted / whole;
      shifted = ratio * part / (1.0F + (ratio - 1.0F) * part) * whole;
    }
    timesteps_.push_back(shifted);
  }
  for (std::size_t i = 0; i < timesteps_.size(); ++i) {
    const float next = i + 1 < timesteps_.size() ? timesteps_[i + 1] : 0.0F;
    strides_.push_back((timesteps_[i] - next) / whole);
    levels_.push_back(timesteps_[i] / whole);
  }
}

void flow_step(float stride, const Tensor& prediction, Tensor& x) {
  const Shape& shape = x.shape();
  expect(shape.size() == 4 && prediction.shape().size() == 4 && prediction.shape(0) == shape[0] &&
             prediction.shape(1) >= shape[1] && prediction.shape(2) == shape[2] &&
             prediction.shape(3) == shape[3],
         "flow step of {} with a prediction {}", shape, prediction.shape());
  const auto on_cpu = [&] {
    const std::int64_t pixels = shape[2] * shape[3], frame = shape[1] * pixels;
    for (std::int64_t t = 0; t < shape[0]; ++t) {
      float* latent = x.data<float>() + t * frame;
      const float* velocity = prediction.data<float>() + t * prediction.shape(1) * pixels;
      for (std::int64_t j = 0; j < frame; ++j) {
        latent[j] = flow_next(stride, velocity[j], latent[j]);
      }
    }
  };
  dispatch(
      x.device(), [&] { gpu::flow_step(stride, prediction, x); }, on_cpu);
}

CleanFactors RectifiedFlow::clean_factors(int i) const {
  return {1, levels_.at(static_cast<std::size_t>(i))};
}

void RectifiedFlow::step(int i, const Tensor& prediction, Tensor& x,
                         std::vector<Tensor>& /*history*/, const DrawNoise& /*draw*/) const {
  flow_step(strides_.at(static_cast<std::size_t>(i)), prediction, x);
}

}  // namespace reelmesh
