#pragma once
// The denoising loop, shared by all model families.
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "job/clip.hpp"
#include "layout/repeated_call.hpp"
#include "models/common/denoiser.hpp"
#include "store/restart.hpp"

namespace reelmesh {

/// The state of one clip between two steps, on one rank.
struct DenoiseState {
  std::int64_t step = 0;        ///< number of completed steps
  Tensor latents;               ///< this rank's box, float32 [frame, channel, row, column]
  std::vector<Tensor> history;  ///< tensors that a multistep sampler keeps, shaped as the latents
  TorchGenerator generator;     ///< of noise; the same on all ranks
  // Of clips that decide which of their steps are computed; the same on all ranks:
  std::optional<Tensor> latents_before;  ///< those of the step before; none before the first step
  double cache_sum = 0;                  ///< TeaCacheRule::Decision::sum

  /// Calls visit(name, tensor) for each tensor of the state; used for both saving and restoring.
  template <class State, class Visit>
  static void for_each_tensor(State& state, Visit&& visit) {
    visit("latents", state.latents);
    for (std::size_t i = 0; i < state.history.size(); ++i) {
      visit(history_name(static_cast<std::int64_t>(i)), state.history[i]);
    }
    if (state.latents_before) visit(latents_before_name, *state.latents_before);
  }
};

/// The same state independent of a layout.
struct SavedState {
  std::int64_t step = 0;
  std::string generator;     ///< TorchGenerator::saved()
  std::int64_t history = 0;  ///< number of tensors in DenoiseState::history
  double cache_sum = 0;      ///< of clips that decide which of their steps are computed
  /// The values of a box of a tensor by its name in the file, float32 on the host.
  std::function<Tensor(const std::string& name, const Box& box)> read;
};

/// The same boxes over a group of more ranks, which hold nothing.
Layout over_first_ranks(const Layout& layout, int ranks);

/// A step that was left before it changed anything: all ranks of the group agree to leave between
/// two layers, or a group of one rank has no memory left.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(std::string lack = {}) : lack_(std::move(lack)) {}
  const char* what() const noexcept override { return "interrupted"; }
  /// What said that there is no memory left; empty without that.
  const std::string& lack() const { return lack_; }

 private:
  std::string lack_;
};

/// Denoises a batch of clips on one denoising group, step by step: lib/pipeline with values, and
/// forecast/dry_runs.hpp with shapes.
class Denoising {
 public:
  /// Starts with the initial noise of each clip. conditioning: per clip, this rank's part of
  /// layout.conditioning(…). Model and batch must outlive the object. Collective over the group.
  Denoising(const comm::Group& group, const DenoiseLayout& layout, const Batch& batch,
            std::span<const Conditioning> conditioning, const Denoiser& model);
  /// Continues from states of these clips that were saved on any group and layout. Without some,
  /// clips of videos begin from `video_latents`: per clip this rank's box of the video's latents,
  /// float32 [frame, channel, row, column] on the host; empty for other clips.
  Denoising(const comm::Group& group, const DenoiseLayout& layout, const Batch& batch,
            std::span<const Conditioning> conditioning, const Denoiser& model,
            std::span<const SavedState> saved, std::span<const Tensor> video_latents = {});

  /// Whether all clips have come to their end_step().
  bool finished() const;
  /// One step of all clips. Collective over the group. With `interruptible`, on CPUs, the ranks
  /// agree between layers whether to stop (stop::leaving() on any of them): then Interrupted is
  /// thrown, and the states are those before the step. So it is if a group of one rank lacks memory
  /// for the model; in larger groups other ranks wait for that one, and its Error ends the job.
  /// at_end: what belongs to the step's span besides, after it; with whether it was the last.
  void step_together(bool interruptible = false,
                     const std::function<void(bool finished)>& at_end = {});
  /// Per clip. The latents keep their addresses while steps replace their values. With cfg 2 both
  /// halves of the group have the same states.
  const std::vector<DenoiseState>& states() const { return states_; }
  /// What is decoded of a finished clip of the batch: its latents, or of one that is left with a
  /// preview the clean latents that the last step predicted. This rank's box, float32.
  const Tensor& result(std::size_t clip) const {
    return previews_.empty() ? states_[clip].latents : previews_[clip];
  }
  /// The tensors of the state of a clip of the batch, as they are distributed over the group: with
  /// cfg 2 latents over its first half, the residual over both.
  std::vector<RestartArray> state_arrays(std::size_t clip) const;

 private:
  /// Of one clip. With one branch both are the same tensor.
  struct Predictions {
    Tensor unconditional, conditional;
  };
  std::vector<Predictions> all_branches(const std::vector<Tensor>& own) const;
  TeaCacheRule::Decision decide(std::int64_t step) const;
  int expert_of(std::int64_t step) const;
  void enter(int expert);
  template <class Call>
  void within_memory(const Call& call) const;
  const std::vector<Tensor>& predict(Blocks blocks, bool interruptible);
  const std::vector<Tensor>& predict_together(Blocks blocks, bool interruptible);
  /// Puts the latents that steps do not change back into those of a clip.
  void hold(std::size_t clip, const Tensor& latents);
  std::vector<Tensor> latents() const;
  Box hidden_box(const Clip& clip, int rank) const;

  comm::Group group_;   ///< the ranks of all branches
  comm::Group branch_;  ///< the ranks that compute the same branches
  DenoiseLayout layout_;
  const Batch& batch_;
  const Denoiser& model_;
  std::vector<Conditioning> conditioning_;  ///< of each clip
  Layout latents_;                          ///< [frame, channel, row, column] over branch_
  std::vector<Tensor> held_;  ///< per clip its first latents, if steps do not change them
  std::vector<DenoiseState> states_;
  std::vector<Tensor> previews_;  ///< per clip, on the host, once a batch is left with previews
  std::optional<int> expert_;     ///< that prepared_ is for
  std::unique_ptr<Denoiser::Prepared> prepared_;  ///< null while there is no expert
  std::vector<std::int64_t> computed_;  ///< for each step whether it is; empty: all, or decided
  Tensor time_;
  std::map<Blocks, RepeatedCall> calls_;  ///< with prepared_, so far
};

}  // namespace reelmesh
