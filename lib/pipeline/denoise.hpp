#pragma once
// The denoising loop, shared by all model families.
#include "layout/repeated_call.hpp"
#include "models/common/denoiser.hpp"
#include "pipeline/clip.hpp"

namespace reelmesh::pipeline {

/// The state of one clip between two steps, on one rank.
struct DenoiseState {
  std::int64_t step = 0;        ///< number of completed steps
  Tensor latents;               ///< this rank's box, float32 [frame, channel, row, column]
  std::vector<Tensor> history;  ///< tensors that a multistep sampler keeps, shaped as the latents
  TorchGenerator generator;     ///< of noise; the same on all ranks

  /// Calls visit(name, tensor) for each tensor of the state; used for both saving and restoring.
  template <class State, class Visit>
  static void for_each_tensor(State& state, Visit&& visit) {
    visit("latents", state.latents);
    for (std::size_t i = 0; i < state.history.size(); ++i) {
      visit(fmt::format("history{}", i), state.history[i]);
    }
  }
};

/// The same state independent of a layout: whole arrays on the host.
struct SavedState {
  std::int64_t step = 0;
  std::string generator;
  std::vector<std::pair<std::string, Tensor>> arrays;  ///< in the order of for_each_tensor
};

/// Denoises a batch of clips on one denoising group, step by step.
class Denoising {
 public:
  /// Starts with the initial noise of each clip. conditioning: per clip, this rank's part of
  /// layout.conditioning(…). Model and batch must outlive the object. Collective over the group.
  Denoising(const comm::Group& group, const DenoiseLayout& layout, const Batch& batch,
            std::span<const Conditioning> conditioning, const Denoiser& model);
  /// Continues from the states that save() returned for these clips, on any group and layout.
  Denoising(const comm::Group& group, const DenoiseLayout& layout, const Batch& batch,
            std::span<const Conditioning> conditioning, const Denoiser& model,
            std::span<const SavedState> saved);

  bool finished() const;
  /// One step of all clips. Collective over the group.
  void step();
  /// Per clip. The latents keep their addresses while steps replace their values. With cfg 2 both
  /// halves of the group have the same states.
  const std::vector<DenoiseState>& states() const { return states_; }
  /// The whole state of each clip, on every rank. Collective over the group.
  std::vector<SavedState> save() const;

 private:
  /// Of one clip. With one branch both are the same tensor.
  struct Predictions {
    Tensor unconditional, conditional;
  };
  std::vector<Predictions> all_branches(const std::vector<Tensor>& own) const;

  comm::Group group_;   ///< the ranks of all branches
  comm::Group branch_;  ///< the ranks that compute the same branches
  DenoiseLayout layout_;
  const Batch& batch_;
  const Denoiser& model_;
  Layout latents_;  ///< [frame, channel, row, column] over branch_
  std::vector<DenoiseState> states_;
  std::unique_ptr<Denoiser::Placed> placed_;
  Tensor time_;
  RepeatedCall predict_;
};

}  // namespace reelmesh::pipeline
