#pragma once
// The clips of a job with all settings resolved: sizes, steps, seeds, token ids, sampler.
#include "pipeline/inputs.hpp"
#include "plan/job.hpp"
#include "sampler/recipe.hpp"
#include "sampler/video_size.hpp"
#include "store/clip.hpp"
#include "text/tokenizer.hpp"

namespace reelmesh::pipeline {

/// The settings that determine shapes: clips of one format have the same layouts.
struct ClipFormat {
  VideoSize size;             ///< of the requested video
  std::int64_t branches = 1;  ///< CFG branches
  InputKind input = InputKind::none;
  friend bool operator==(const ClipFormat&, const ClipFormat&) = default;
};

/// One clip, of any model family.
struct Clip {
  ClipRecord record;  ///< attributes of its file; layout and wall_seconds are set when writing it
  ClipFormat format;
  /// Token ids of its texts: the negative prompt if guidance needs one, then the prompt.
  std::vector<std::vector<std::int32_t>> texts;
  Shape latents;                    ///< [frame, row, column] that are denoised
  std::int64_t dropped_frames = 0;  ///< latent frames at the front that only fill a patch
  std::int64_t latent_channels = 4;
  Shape video;                     ///< [frame, row, column] of pixels
  std::optional<ClipInput> input;  ///< what it begins from, beside noise
  SamplingRecipe sampling;
  std::int64_t saved_step = 0;  ///< completed steps in its restart file; 0: it has none

  int index() const { return record.index; }
  std::int64_t tokens() const;  ///< of its longest text
  /// Of the embeddings of its texts with this number of channels, and of its encoded input.
  std::int64_t embedding_bytes(std::int64_t channels, DType dtype) const;
  /// [frame, channel, row, column] as they are denoised.
  Shape latent_shape() const { return {latents[0], latent_channels, latents[1], latents[2]}; }
  /// The same of its encoded input, the first of these frames; empty without one.
  Shape input_shape() const {
    if (!input) return {};
    return {input->latent_frames, latent_channels, latents[1], latents[2]};
  }
};

/// Shapes of the arrays that the job writes for a clip. text_channels: of a text embedding.
ClipShapes output_shapes(const Job& job, const Clip& clip, std::int64_t text_channels);

/// Settings of a clip that the job does not give.
struct ClipDefaults {
  VideoSize size;
  double fps = 8;
  int steps = 50;
  double guidance = 6;
};

/// A clip with size and record set, each value from the first of request, job and defaults that has
/// it; frames and fps that neither request nor job has are those of the video, if there is one.
/// `input` is set with its file and frames. Texts, shapes and sampling are left unset. inputs: the
/// facts of all files of the job. Error(data) if the video has fewer frames than asked for;
/// Error(usage) for a strength without a video.
Clip requested_clip(const Job& job, const ClipRequest& request, int index,
                    const ClipDefaults& defaults, const Inputs& inputs = {});

/// What becomes of the file that a clip begins from, in one line: "prompt.image: cat.png: 800 x 600
/// pixels, resized to 720 x 480".
std::string describe_input(const Clip& clip, const InputFacts& facts);

/// Token ids of a text for a model that takes `limit` of them; warns of words that are cut off.
/// clip, what ("prompt"): for the warning.
Encoded encode_text(const Tokenizer& tokenizer, const std::string& text, std::int64_t limit,
                    int clip, const char* what);

/// Token ids of a clip's prompt: the request's own if it gives some, otherwise those of `text`, the
/// prompt as prepared by the model's family. Error(usage) for ids that the model cannot take.
Encoded encode_prompt(const Tokenizer& tokenizer, const ClipRequest& request,
                      const std::string& text, std::int64_t limit, int clip);

/// Error(usage) unless `value` is a positive multiple of `multiple` pixels. For the message: name
/// ("height"), where (line of a prompt file that gives the value; empty: the option sample.NAME),
/// clip, pixels_per_latent.
void check_size(const char* name, const std::string& where, int clip, std::int64_t value,
                std::int64_t multiple, std::int64_t pixels_per_latent);

/// Clips that are denoised together: same format, fps, steps, strength, guidance and first step.
/// Each has its own prompt, seed and noise, and its bits do not depend on the others.
using Batch = std::vector<Clip>;

/// Groups the clips into batches of at most `max_clips`. Each clip joins the first compatible batch
/// that has room; batches are ordered by their first clips.
std::vector<Batch> batches_of(std::vector<Clip> clips, int max_clips);

/// The sum of the sampler steps that its clips still need.
std::int64_t steps_of(const Batch& batch);

}  // namespace reelmesh::pipeline
