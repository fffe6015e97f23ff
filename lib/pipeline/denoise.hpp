#pragma once
// The denoising loop of all families.
#include "layout/repeated_call.hpp"
#include "models/common/denoiser.hpp"
#include "pipeline/clip.hpp"

namespace reelmesh::pipeline {

/// One clip between two steps, on one rank: all that the steps to come need of those before.
struct DenoiseState {
  std::int64_t step = 0;        ///< steps that are done
  Tensor latents;               ///< this rank's box, float32 [frame, channel, row, column]
  std::vector<Tensor> history;  ///< what the sampler keeps from step to step, like the latents
  TorchGenerator generator;     ///< of noise; the same on all ranks

  /// Calls visit(name, tensor) for each tensor of the state: the one list that saving and restoring
  /// go by.
  template <class State, class Visit>
  static void for_each_tensor(State& state, Visit&& visit) {
    visit("latents", state.latents);
    for (std::size_t i = 0; i < state.history.size(); ++i) {
      visit(fmt::format("history{}", i), state.history[i]);
    }
  }
};

/// The same clip without a layout: whole arrays on the host.
struct SavedState {
  std::int64_t step = 0;
  std::string generator;
  std::vector<std::pair<std::string, Tensor>> arrays;  ///< in the order of for_each_tensor
};

/// Steps of a batch of clips on one denoising group.
class Denoising {
 public:
  /// conditioning: of each clip, this rank's part of layout.conditioning(…). The model outlives the
  /// result. Starts with the initial noise of each clip. Collective over the group.
  Denoising(const comm::Group& group, const DenoiseLayout& layout, const Batch& batch,
            std::span<const Conditioning> conditioning, const Denoiser& model);
  /// Goes on from what save() gave for these clips, on any group and layout.
  Denoising(const comm::Group& group, const DenoiseLayout& layout, const Batch& batch,
            std::span<const Conditioning> conditioning, const Denoiser& model,
            std::span<const SavedState> saved);

  bool finished() const;
  /// One step of all clips. Collective over the group.
  void step();
  /// Of each clip; the latents stay where they are while the steps replace their values. With cfg 2
  /// both halves of the group have the same.
  const std::vector<DenoiseState>& states() const { return states_; }
  /// Each clip's state, on every rank. Collective over the group.
  std::vector<SavedState> save() const;

 private:
  /// Of one clip: the same tensor where there is but one branch.
  struct Predictions {
    Tensor unconditional, conditional;
  };
  std::vector<Predictions> all_branches(const std::vector<Tensor>& own) const;

  comm::Group group_;   ///< of all branches
  comm::Group branch_;  ///< the ranks that work on the same branches
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
