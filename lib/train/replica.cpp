#include "train/replica.hpp"

#include "base/trace.hpp"
#include "layout/relayout.hpp"

namespace reelmesh::train {

TrainedReplica::TrainedReplica(Trainable& model, const DenoiseTask& task, const comm::Group& peers,
                               const TrainSettings& settings, const ImageEncoding& images)
    : model_(model),
      peers_(peers),
      settings_(settings),
      images_(images),
      group_(task.group),
      prepared_(model.prepare(task)),
      parameters_(task.group, peers, model, prepared_->columns(), settings, model.device().host()) {
  divide_image(task);
}

void TrainedReplica::divide_image(const DenoiseTask& task) {
  latents_ = task.layout.latents;
  if (images_.encoder == nullptr) return;
  image_latents_ = image_latents(task.latents, group_.size());
  image_pixels_ = images_.encoder->frames_of(image_latents_, 1)
                      .without_axis(0)
                      .scaled(0, task.size.height / task.latents[1])
                      .scaled(1, task.size.width / task.latents[2])
                      .with_axis(2, 3);
}

std::unique_ptr<TrainingReplica> TrainedReplica::make(Trainable& model, const DenoiseTask& task,
                                                      const comm::Group& peers,
                                                      const TrainSettings& settings,
                                                      const ImageEncoding& images) {
  return std::make_unique<TrainedReplica>(model, task, peers, settings, images);
}

Tensor TrainedReplica::encode_image(const Tensor& pixels, const ImageNoise& noise) const {
  const trace::Scope scope(trace::spans::encode_image);
  const Box& own = own_box(image_pixels_, group_);
  const Tensor frame = pixels.reshape({1, own.extent[0], own.extent[1], 3});
  Tensor encoded = images_.encoder->sample(
      {frame, image_pixels_.with_axis(0, 1), group_}, image_latents_, images_.scale,
      [&](std::span<float> values) {
        const std::int64_t pixels_of_latents = own_box(image_latents_, group_).numel();
        const std::int64_t channels = std::ssize(values) / pixels_of_latents;
        noise(own_box(image_latents_.with_axis(1, channels), group_), values);
      });
  // Frames beside the first are zeros, also those in front that only fill a patch, as in `run`.
  const std::int64_t channels = encoded.shape(1);
  const Box box = own_box(latents_.with_axis(1, channels), group_);
  Tensor image = Tensor::zeros(box.extent, DType::float32, encoded.device());
  const Tensor own_part = relayout({encoded, image_latents_.with_axis(1, channels), group_},
                                   latents_.cropped(0, 0, 1).with_axis(1, channels))
                              .local;
  if (!own_part.empty()) {
    Tensor first = image.rows(0, 1);
    first.copy_from(own_part);
  }
  return image;
}

void TrainedReplica::prepare(const DenoiseTask& task) {
  prepared_.reset();
  prepared_ = model_.prepare(task);
  divide_image(task);
}

TrainingReplica::Computed TrainedReplica::compute(const TrainingSample& sample) {
  Computed result;
  if (peers_.size() > 1) result.gradient = parameters_.empty_gradient();
  result.losses =
      prepared_->gradient_together(sample, [&](std::size_t matrix, const Tensor& gradient) {
        if (peers_.size() == 1) return parameters_.add(matrix, gradient);
        Tensor into = parameters_.part(result.gradient, matrix);
        into.copy_from(gradient.reshape(into.shape()));
      });
  return result;
}

void TrainedReplica::add(const Tensor& own, std::int64_t clips) {
  if (peers_.size() == 1) return;  // compute() has added them
  parameters_.add_together(own, static_cast<int>(clips));
}

void TrainedReplica::update(std::int64_t step, double norm, std::int64_t clips) {
  parameters_.update_together(step, learning_rate(settings_, step),
                              clip_factor(norm, settings_.clip), clips);
  use_values();
}

void TrainedReplica::use_values() {
  model_.set_together([this](std::size_t first, std::size_t count) {
    return parameters_.values_together(first, count);
  });
}

}  // namespace reelmesh::train
