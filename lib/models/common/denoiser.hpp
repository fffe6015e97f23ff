#pragma once
// What the pipeline asks of a family's diffusion transformer.
#include <memory>
#include <span>
#include <vector>

#include "layout/clip_layout.hpp"
#include "layout/sharded.hpp"
#include "sampler/video_size.hpp"

namespace reelmesh {

/// What a clip is denoised under, beside its latents. Constant over all steps.
struct Conditioning {
  /// Text embeddings [token, branch, channel] of the model's dtype: this rank's part of
  /// DenoiseLayout::conditioning. On the host or on the model's device.
  Tensor text;
};

/// Clips of one size that go through the transformer together, on the ranks that work on the same
/// branches of guidance.
struct DenoiseTask {
  comm::Group group;          ///< layout.mesh.branch_ranks() ranks
  DenoiseLayout layout;       ///< of one clip
  Shape latents;              ///< of one clip: [frame, row, column]
  std::int64_t branches = 1;  ///< of guidance that this group works on, of one clip
  VideoSize size;             ///< of the video
  double fps = 8;
};

/// A diffusion transformer with its weights, on one device.
class Denoiser {
 public:
  /// Everything that is the same in all steps of some clips: tables of positions, texts, messages.
  class Placed {
   public:
    virtual ~Placed() = default;
    Placed() = default;
    Placed(const Placed&) = delete;
    Placed& operator=(const Placed&) = delete;

    /// latents: of each clip this rank's box, float32 [frame, channel, row, column] of the channels
    /// that are denoised. time: from Denoiser::embed. All on the model's device. → the predictions
    /// of each clip's branches (all of the first clip, then of the next), float32, shaped as the
    /// latents or with more channels. A clip's bits do not depend on the clips that it goes with.
    /// Collective over the task's group.
    virtual std::vector<Tensor> predict(std::span<const Tensor> latents,
                                        const Tensor& time) const = 0;
  };

  virtual ~Denoiser() = default;
  Denoiser() = default;
  Denoiser(const Denoiser&) = delete;
  Denoiser& operator=(const Denoiser&) = delete;

  virtual Device device() const = 0;
  /// A timestep as predict() takes it, on device().
  virtual Tensor embed(double timestep) const = 0;
  /// conditioning: of each clip. The denoiser outlives the result. Collective over task.group.
  virtual std::unique_ptr<Placed> place(const DenoiseTask& task,
                                        std::span<const Conditioning> conditioning) const = 0;
};

}  // namespace reelmesh
