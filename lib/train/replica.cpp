#include "train/replica.hpp"

namespace reelmesh::train {

TrainedReplica::TrainedReplica(Trainable& model, const DenoiseTask& task, const comm::Group& peers,
                               const TrainSettings& settings)
    : model_(model),
      peers_(peers),
      settings_(settings),
      prepared_(model.prepare(task)),
      parameters_(task.group, model, prepared_->columns(), settings, model.device().host()) {}

std::unique_ptr<TrainingReplica> TrainedReplica::make(Trainable& model, const DenoiseTask& task,
                                                      const comm::Group& peers,
                                                      const TrainSettings& settings) {
  return std::make_unique<TrainedReplica>(model, task, peers, settings);
}

void TrainedReplica::prepare(const DenoiseTask& task) {
  prepared_.reset();
  prepared_ = model_.prepare(task);
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

// Every rank gets the gradients of its part from all replicas.
void TrainedReplica::add(const Tensor& own, std::int64_t clips) {
  if (peers_.size() == 1) return;  // compute() has added them
  std::vector<Tensor> gradients(static_cast<std::size_t>(clips));
  std::vector<comm::Message> sends, receives;
  for (int peer = 0; peer < peers_.size(); ++peer) {
    const bool is_own = peer == peers_.rank();
    if (!is_own && peers_.rank() < clips) sends.push_back({peer, own});
    if (peer >= clips) continue;
    Tensor& from = gradients[static_cast<std::size_t>(peer)];
    from = is_own ? own : parameters_.empty_gradient();
    if (!is_own) receives.push_back({peer, from});
  }
  peers_.exchange(sends, receives);
  for (const Tensor& of_sample : gradients) parameters_.add(of_sample);
}

void TrainedReplica::update(std::int64_t step, double norm, std::int64_t clips) {
  parameters_.update(step, learning_rate(settings_, step), clip_factor(norm, settings_.clip),
                     clips);
  use_values();
}

void TrainedReplica::use_values() {
  model_.set_together([this](std::size_t first, std::size_t count) {
    return parameters_.values_together(first, count);
  });
}

}  // namespace reelmesh::train
