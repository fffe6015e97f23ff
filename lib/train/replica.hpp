#pragma once
// What a training does on the ranks of one replica.
#include "job/training_replica.hpp"
#include "train/parameters.hpp"

namespace reelmesh::train {

class TrainedReplica final : public TrainingReplica {
 public:
  /// As MakeTrainingReplica. Collective over task.group.
  TrainedReplica(Trainable& model, const DenoiseTask& task, const comm::Group& peers,
                 const TrainSettings& settings, const ImageEncoding& images = {});
  static std::unique_ptr<TrainingReplica> make(Trainable& model, const DenoiseTask& task,
                                               const comm::Group& peers,
                                               const TrainSettings& settings,
                                               const ImageEncoding& images);

  const Layout& image_pixels() const override { return image_pixels_; }
  Tensor encode_image(const Tensor& pixels, const ImageNoise& noise) const override;

  /// From now on clips of another size, on the same ranks. Collective over task.group.
  void prepare(const DenoiseTask& task);
  Computed compute(const TrainingSample& sample) override;
  /// Computed::losses alone, with the same bits. Collective over the replica.
  ops::ExactSum losses_together(const TrainingSample& sample) {
    return prepared_->losses_together(sample);
  }
  void add(const Tensor& own, std::int64_t clips) override;
  void update(std::int64_t step, double norm, std::int64_t clips) override;
  void use_values() override;
  const TokenColumns& columns() const override { return prepared_->columns(); }

  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }

 private:
  // The layouts below.
  void divide_image(const DenoiseTask& task);

  Trainable& model_;
  comm::Group peers_;
  const TrainSettings& settings_;
  ImageEncoding images_;
  comm::Group group_;
  Layout latents_;        // of a clip: [frame, row, column]
  Layout image_latents_;  // as they are encoded: [1, row, column]
  Layout image_pixels_;
  std::unique_ptr<Trainable::Prepared> prepared_;
  Parameters parameters_;
};

}  // namespace reelmesh::train
