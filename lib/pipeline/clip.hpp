#pragma once
// The clips of a job with everything decided: sizes, steps, seeds, token ids, sampler.
#include "plan/job.hpp"
#include "sampler/recipe.hpp"
#include "sampler/video_size.hpp"
#include "store/clip.hpp"
#include "text/tokenizer.hpp"

namespace reelmesh::pipeline {

/// What decides on shapes: clips of one format have the same layouts.
struct ClipFormat {
  VideoSize size;             ///< of the video that was asked for
  std::int64_t branches = 1;  ///< of guidance that the transformer computes
  friend bool operator==(const ClipFormat&, const ClipFormat&) = default;
};

/// One clip, of any family.
struct Clip {
  ClipRecord record;  ///< what the file will say of it; layout and wall_seconds are still open
  ClipFormat format;
  /// Token ids of the texts that it is denoised under: the negative prompt, where guidance needs
  /// one, then the prompt.
  std::vector<std::vector<std::int32_t>> texts;
  Shape latents;                    ///< [frame, row, column] that are denoised
  std::int64_t dropped_frames = 0;  ///< the first of them, which only fill a patch
  std::int64_t latent_channels = 4;
  Shape video;  ///< [frame, row, column] of pixels
  SamplingRecipe sampling;

  int index() const { return record.index; }
  std::int64_t tokens() const;  ///< of its longest text
  /// [frame, channel, row, column] as they are denoised.
  Shape latent_shape() const { return {latents[0], latent_channels, latents[1], latents[2]}; }
};

/// The arrays that the job keeps of a clip. text_channels: of an embedding.
ClipShapes kept_arrays(const Job& job, const Clip& clip, std::int64_t text_channels);

/// What a clip is like unless the job says otherwise.
struct ClipDefaults {
  VideoSize size;
  double fps = 8;
  int steps = 50;
  double guidance = 6;
};

/// A clip with what request, job and defaults say, in this order: size and record, without texts,
/// shapes and sampling.
Clip requested_clip(const Job& job, const ClipRequest& request, int index,
                    const ClipDefaults& defaults);

/// Ids of a text for a model that takes `limit` of them; warns of words that are cut off. what:
/// "prompt".
Encoded encode_text(const Tokenizer& tokenizer, const std::string& text, std::int64_t limit,
                    int clip, const char* what);

/// The same for the prompt of a clip, `text` being what the model's family makes of it; where the
/// clip brings token ids, these are taken instead. Error(usage) for ids that the model cannot take.
Encoded encode_prompt(const Tokenizer& tokenizer, const ClipRequest& request,
                      const std::string& text, std::int64_t limit, int clip);

/// Error(usage) unless `value` is a positive multiple of `multiple` pixels. option:
/// "sample.height".
void check_size(const char* option, int clip, std::int64_t value, std::int64_t multiple,
                std::int64_t pixels_per_latent);

/// Clips that are denoised together: of one format, and with the same fps, steps and guidance. Each
/// has its own prompt, seed and noise, and its bits do not depend on the others.
using Batch = std::vector<Clip>;

/// The clips in batches of at most `max_clips`, in the order of their first clips: each clip joins
/// the first batch of its kind that has room.
std::vector<Batch> batches_of(std::vector<Clip> clips, int max_clips);

/// Sampler steps of all of its clips.
std::int64_t steps_of(const Batch& batch);

}  // namespace reelmesh::pipeline
