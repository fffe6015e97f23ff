#include "train/replica.hpp"

namespace reelmesh::train {

LoraReplica::LoraReplica(Trainable& model, const DenoiseTask& task, const comm::Group& peers,
                         const TrainSettings& settings)
    : model_(model),
      peers_(peers),
      settings_(settings),
      prepared_(model.prepare(task)),
      parameters_(task.group, model.targets(), prepared_->columns(), settings,
                  model.device().host()) {}

std::unique_ptr<TrainingReplica> LoraReplica::make(Trainable& model, const DenoiseTask& task,
                                                   const comm::Group& peers,
                                                   const TrainSettings& settings) {
  return std::make_unique<LoraReplica>(model, task, peers, settings);
}

TrainingReplica::Computed LoraReplica::compute(const TrainingSample& sample) {
  const SampleGradient found = prepared_->gradient_together(sample);
  return {found.squares, parameters_.flat(found.gradients)};
}

// Every rank gets the gradients of its columns from all replicas.
void LoraReplica::add(const Tensor& own, std::int64_t clips) {
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

void LoraReplica::update(std::int64_t step, double norm, std::int64_t clips) {
  parameters_.update(step, learning_rate(settings_, step), clip_factor(norm, settings_.clip),
                     clips);
  use_values();
}

void LoraReplica::use_values() { model_.set(parameters_.all_together()); }

}  // namespace reelmesh::train
