#pragma once
// The clips of a job with everything decided: sizes, steps, seeds, token ids.
#include "models/cogvideox/folder.hpp"
#include "plan/denoise.hpp"
#include "store/clip.hpp"
#include "text/tokenizer.hpp"

namespace reelmesh::pipeline {

struct Clip {
  ClipRecord record;  ///< what the file will say of it; wall_seconds is still open
  std::vector<std::vector<std::int32_t>> branches;  ///< token ids: negative, then prompt; or prompt
  SamplerKind sampler = SamplerKind::ddim;
  bool dynamic_guidance = false;
  std::int64_t latent_height = 0, latent_width = 0;
  std::int64_t latent_frames = 0;   ///< that are denoised
  std::int64_t dropped_frames = 0;  ///< the first of them, which only fill a patch (releases 1.5)

  int index() const { return record.index; }
  std::int64_t kept_frames() const { return latent_frames - dropped_frames; }
  /// Tokens [frame, row, column].
  Shape grid(const ops::Patch& patch) const;
  /// What decides how it lies over a denoising group. dtype: of the computation.
  DenoiseSizes sizes(const CogVideoXConfig& transformer, DType dtype) const;
  /// The arrays that the job keeps of it.
  ClipShapes shapes(const Job& job, const CogVideoXFolder& model) const;
};

/// Defaults come from the checkpoint. Warns of prompts that are cut. Error(usage) for sizes that
/// the model cannot make, naming option, clip, what was found and what is expected.
std::vector<Clip> resolve_clips(const Job& job, const CogVideoXFolder& model,
                                const Tokenizer& tokenizer);

}  // namespace reelmesh::pipeline
