#pragma once
// The clips of a job with everything decided: sizes, steps, seeds, token ids.
#include "models/cogvideox/folder.hpp"
#include "plan/denoise.hpp"
#include "sampler/rectified_flow.hpp"
#include "store/clip.hpp"
#include "text/tokenizer.hpp"

namespace reelmesh::pipeline {

struct Clip {
  ClipRecord record;  ///< what the file will say of it; wall_seconds is still open
  std::vector<std::vector<std::int32_t>> branches;  ///< token ids: negative, then prompt; or prompt
  VideoSize size;                                   ///< of the video that was asked for
  SamplerKind sampler = SamplerKind::ddim;          ///< CogVideoX
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

/// Ids of a text for a model that takes `limit` of them; warns of words that are cut off. what:
/// "prompt".
Encoded encode_text(const Tokenizer& tokenizer, const std::string& text, std::int64_t limit,
                    int clip, const char* what);

/// The same for the prompt of a clip, `text` being what the model's family makes of it; where the
/// clip brings token ids, these are taken instead. Error(usage) for ids that the model cannot take.
Encoded encode_prompt(const Tokenizer& tokenizer, const ClipRequest& request,
                      const std::string& text, std::int64_t limit, int clip);

/// Error(usage) unless there is a positive multiple of `multiple` pixels.
void check_size(const char* option, int clip, std::int64_t value, std::int64_t multiple);

/// What the clip says, else what the job says, else what the model says.
template <class T>
T given(const std::optional<T>& of_clip, const std::optional<T>& of_job, T otherwise) {
  return of_clip ? *of_clip : of_job ? *of_job : otherwise;
}

/// CogVideoX's. Defaults come from the checkpoint. Warns of prompts that are cut. Error(usage) for
/// sizes that the model cannot make, naming option, clip, what was found and what is expected.
std::vector<Clip> resolve_clips(const Job& job, const CogVideoXFolder& model,
                                const Tokenizer& tokenizer);

}  // namespace reelmesh::pipeline
