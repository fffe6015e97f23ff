#pragma once
// Saving and continuing clips within their denoising.
#include <optional>

#include "base/stop.hpp"
#include "job/denoise.hpp"
#include "job/job.hpp"

namespace reelmesh::pipeline {

/// What the restart file of a clip says.
struct FoundState {
  std::int64_t step = 0;  ///< completed steps; 0: it has none that can be used
  std::string problem;    ///< of a file that is there: why it cannot
};
/// text_channels: of a text embedding. Not collective.
FoundState find_state(const Job& job, const Clip& clip, std::int64_t text_channels);

/// The restart file of a clip that has saved steps. Error(io) if it can no longer be read.
RestartFile open_restart(const Job& job, const Clip& clip, std::int64_t text_channels);

/// The state in a restart file, which must outlive it.
SavedState saved_state(const RestartFile& file);

/// Saves a batch of clips while a group denoises it: as often as restart.every says, when the job
/// is to stop, and when they are left with a preview. Also after the last step, if repeating the
/// steps since the last save would take long, so that an end while decoding loses little.
class Autosave {
 public:
  /// conditioning: as that of Denoising, with `text_channels`. All arguments must outlive the
  /// object.
  Autosave(const std::filesystem::path& output, const RestartSettings& settings,
           const comm::Group& group, const DenoiseLayout& layout, const Batch& batch,
           std::span<const Conditioning> conditioning, std::int64_t text_channels);

  /// Call it after each step: agrees with the other ranks which clips have failed and whether to
  /// save, and saves. enough: this rank wants no more steps. → whether the batch is to stop here,
  /// because of that or of a request; the states are saved then. Collective over the group.
  bool agree_after_step(const Denoising& denoising, bool enough);
  /// Per clip the lowest rank of the group that has found values that are not finite; -1 if none
  /// has. The same on all ranks. Such clips are no longer saved.
  const std::vector<int>& failed_on() const { return failed_on_; }
  /// Per clip whether it was saved; the same on all ranks.
  const std::vector<bool>& saved() const { return saved_; }
  /// Whether a step is so long that it should be interruptible between layers; the same on all
  /// ranks.
  bool steps_are_long() const { return steps_are_long_; }
  /// Saves the states, unless they are those before the first step or saved already. Collective.
  void save_together(const Denoising& denoising);

 private:
  const std::filesystem::path& output_;
  const RestartSettings& settings_;
  const comm::Group& group_;
  const DenoiseLayout& layout_;
  const Batch& batch_;
  std::span<const Conditioning> conditioning_;
  std::int64_t text_channels_;
  std::vector<int> failed_on_;
  std::vector<bool> saved_;
  std::int64_t saved_step_;
  double saved_at_, step_began_;
  bool steps_are_long_ = true;  // until one has been timed
  std::optional<stop::UnsavedWork> unsaved_;
};

}  // namespace reelmesh::pipeline
