#pragma once
// The interface of a model family's diffusion transformer to the pipeline.
#include <memory>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "layout/clip_layout.hpp"
#include "layout/sharded.hpp"
#include "sampler/video_size.hpp"

namespace reelmesh {

/// The conditioning of one clip. Constant over all steps.
struct Conditioning {
  /// Text embeddings [token, branch, channel] of the model's dtype: this rank's part of
  /// DenoiseLayout::conditioning. On the host or on the model's device.
  Tensor text;
  /// Image to video: the latents of the image that the model takes beside the noisy ones, zeros in
  /// frames without an image. This rank's box of the clip's latents, float32 [frame, channel, row,
  /// column], on the host; the same for both branches of guidance. Empty for other models.
  Tensor image;
  bool ends_with_image = false;  ///< whether `image` has also that of the last frame
  /// Rows of the encoder of the image, [row, channel] of the model's dtype, on the host; the same
  /// on all ranks. Empty for models that take none.
  Tensor vision;
};

/// A batch of clips of one size, denoised by the ranks that compute the same branches of guidance.
struct DenoiseTask {
  comm::Group group;            ///< layout.mesh.branch_ranks() ranks
  DenoiseLayout layout;         ///< of one clip
  Shape latents;                ///< of one clip: [frame, row, column]
  std::int64_t branches = 1;    ///< guidance branches of one clip that this group computes
  VideoSize size;               ///< of the video
  double fps = 8;               ///< frames per second of the video
  bool keeps_residual = false;  ///< for steps that are not computed (sampler/step_cache.hpp)
  std::int64_t image_rows = 0;  ///< of a training: of TrainingSample::vision
};

/// What a step does with the blocks of the transformer.
enum class Blocks {
  compute,
  compute_and_keep,  ///< and keep what they add to the video's tokens, the residual
  reuse              ///< leave them out: add the residual that was kept last
};

/// What a step of one clip begins with, as Denoiser::Prepared::predict_together() takes it.
struct StepInput {
  Tensor latents, time;
};

/// A diffusion transformer with its weights, on one device.
class Denoiser {
 public:
  /// A batch of clips, with everything that all steps share: position tables, texts, exchanges.
  class Prepared {
   public:
    virtual ~Prepared() = default;
    Prepared() = default;
    Prepared(const Prepared&) = delete;
    Prepared& operator=(const Prepared&) = delete;

    /// latents: this rank's box of each clip, float32 [frame, channel, row, column]. time: from
    /// Denoiser::embed. All on the model's device. → one prediction per branch (all of the first
    /// clip, then of the next), float32, shaped as the latents or with more channels. A clip's bits
    /// do not depend on the other clips of the batch. Collective over the task's group.
    /// blocks: other than `compute` only with DenoiseTask::keeps_residual.
    virtual std::vector<Tensor> predict_together(std::span<const Tensor> latents,
                                                 const Tensor& time, Blocks blocks) = 0;

    /// mean |e − e′| / mean |e′| over all tokens and channels, in the order of the tokens' global
    /// indices: e is what the first block's attention gets of these latents, which are those of a
    /// task of one clip, and e′ what it got of those of the step before. Only for models whose rule
    /// of teacache needs it (sampler/step_cache.hpp). Collective; the same on all ranks.
    virtual double change_together(const StepInput& /*now*/, const StepInput& /*before*/) const {
      fail(Status::internal, "a model without a rule of teacache that looks at values");
    }

    /// The kept residual of a clip, float32 on the host: [token of this rank's box, branch,
    /// channel].
    virtual Tensor residual(std::int64_t clip) const = 0;
    /// Sets it.
    virtual void set_residual(std::int64_t clip, const Tensor& values) = 0;
  };

  virtual ~Denoiser() = default;
  Denoiser() = default;
  Denoiser(const Denoiser&) = delete;
  Denoiser& operator=(const Denoiser&) = delete;

  virtual Device device() const = 0;
  /// Whether the host takes no part in fetching weights, so that predict_together() can be captured
  /// in a CUDA graph if the messages of the task's group can. An expert is in use.
  virtual bool capturable() const { return true; }
  /// Which computation a step with this timestep is, for models that choose it by the timestep, as
  /// of two experts of which one takes the noisy steps: whatever a step depends on beside `Blocks`
  /// and the values of its tensors. A CUDA graph of a step is replayed for others of the same.
  virtual int expert(double /*timestep*/) const { return 0; }
  /// From now on steps are those of this expert, and prepare() is for them. What was prepared for
  /// another must be gone, since its weights may be. → whether weights were loaded. Collective as
  /// loading.
  virtual bool use_together(int /*expert*/) const { return false; }
  /// The embedding of a timestep for predict_together(), on device(); of all timesteps of one
  /// shape. An expert is in use.
  virtual Tensor embed(double timestep) const = 0;
  /// For steps of the expert that is in use. conditioning: of each clip. The denoiser must outlive
  /// the result. Collective over task.group.
  virtual std::unique_ptr<Prepared> prepare(const DenoiseTask& task,
                                            std::span<const Conditioning> conditioning) const = 0;
};

}  // namespace reelmesh
