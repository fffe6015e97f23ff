#include "models/common/training_loss.hpp"

namespace reelmesh {

ops::ExactSum training_loss(const std::optional<IddpmLoss>& iddpm, const TrainingSample& sample,
                            const Tensor& prediction, std::int64_t elements, Tensor* gradient) {
  const Shape& box = sample.target.shape();
  const std::int64_t channels = box[1], pixels = box[2] * box[3];
  const std::int64_t predicted = prediction.shape(1);
  expect(prediction.shape() == Shape{box[0], predicted, box[2], box[3]} &&
             predicted >= (iddpm ? 2 * channels : channels),
         "a prediction {} for a target {}", prediction.shape(), box);
  if (gradient != nullptr) {
    *gradient = Tensor::zeros(prediction.shape(), DType::float32, prediction.device());
  }
  ops::ExactSum losses;
  const auto set = [&](std::int64_t at, double derivative) {
    if (gradient == nullptr) return;
    gradient->data<float>()[at] = static_cast<float>(derivative / static_cast<double>(elements));
  };
  for (std::int64_t i = 0; i < box[0] * pixels && !prediction.device().only_shapes; ++i) {
    const std::int64_t frame = i / pixels, pixel = i % pixels;
    double of_pixel = 0;
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      const std::int64_t at = (frame * channels + channel) * pixels + pixel;
      const std::int64_t first = (frame * predicted + channel) * pixels + pixel;
      const float target = sample.target.data<float>()[at];
      const float value = prediction.data<float>()[first];
      if (!iddpm) {
        const double error = double{value} - double{target};
        of_pixel += sample.weight * (error * error);
        set(first, sample.weight * (2 * error));
        continue;
      }
      const std::int64_t second = first + channels * pixels;
      const auto of_element =
          iddpm->at(static_cast<std::int64_t>(sample.timestep), sample.clean.data<float>()[at],
                    target, value, prediction.data<float>()[second], sample.weight);
      of_pixel += of_element.loss;
      set(first, of_element.d_noise);
      set(second, of_element.d_variance);
    }
    losses.add(of_pixel);
  }
  return losses;
}

}  // namespace reelmesh
