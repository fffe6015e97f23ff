#pragma once
// The clips of a job with all settings resolved: sizes, steps, seeds, token ids, sampler.
#include <compare>
#include <map>
#include <span>
#include <tuple>

#include "job/inputs.hpp"
#include "job/job.hpp"
#include "sampler/recipe.hpp"
#include "sampler/video_size.hpp"
#include "store/clip.hpp"
#include "text/tokenizer.hpp"

namespace reelmesh {

/// The settings that determine shapes: clips of one format have the same layouts.
struct ClipFormat {
  VideoSize size;             ///< of the requested video, as in its settings
  std::int64_t branches = 1;  ///< CFG branches
  InputKind input = InputKind::none;
  bool keeps_residual = false;  ///< for steps that are not computed
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
  /// Of the transformer's hidden states of the video: [frame, row, column, branch, channel].
  Shape hidden;
  Shape video;                     ///< [frame, row, column] of pixels
  std::optional<ClipInput> input;  ///< what it begins from, beside noise
  Shape vision;  ///< [row, channel] that a vision encoder makes of its images; empty: none
  std::int64_t image_rows() const { return vision.empty() ? 0 : vision.front(); }
  SamplingRecipe sampling;
  std::int64_t saved_step = 0;        ///< completed steps in its restart file; 0: it has none
  std::optional<int> stop_after;      ///< of the job
  std::vector<std::string> warnings;  ///< of words that were cut off

  int index() const { return record.index; }
  // Settings that every clip has.
  int steps() const { return record.settings.steps.value(); }
  double guidance() const { return record.settings.guidance.value(); }
  double fps() const { return record.settings.fps.value(); }
  std::uint64_t seed() const { return record.settings.seed.value(); }
  const std::optional<double>& strength() const { return record.settings.strength; }
  const std::optional<StepCache>& cache() const { return record.settings.cache; }
  std::int64_t tokens() const;  ///< of its longest text
  /// How many steps are completed when a job leaves it that begins after `saved` of them: all, or
  /// those of stop_after; one more than `saved` if there are as many already.
  std::int64_t end_step(std::int64_t saved) const;
  std::int64_t end_step() const { return end_step(saved_step); }
  /// Whether a job that begins after `saved` steps leaves it with a preview.
  bool is_left(std::int64_t saved) const {
    return stop_after && end_step(saved) < sampling.sampler->calls();
  }
  bool is_left() const { return is_left(saved_step); }
  /// Of the video that is made. format.size, which was asked for, is rounded to what the model can
  /// make.
  VideoSize made_size() const { return {video.at(1), video.at(2), video.at(0)}; }
  /// [frame, channel, row, column] as they are denoised.
  Shape latent_shape() const { return {latents[0], latent_channels, latents[1], latents[2]}; }
  /// The same of its encoded input, the first of these frames; empty without one.
  Shape input_shape() const {
    if (!input) return {};
    return {input->latent_frames, latent_channels, latents[1], latents[2]};
  }
};

/// The layout of pixels [frame, row, column, 3] of a clip's size, from that of frames as
/// Encoder::frames_of() says.
Layout encoded_pixels(const Clip& clip, const Layout& frames);

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
/// Error(usage) for a strength without a video. A cache
/// that is none is left out, and coefficients without teacache.
Clip requested_clip(const Job& job, const ClipRequest& request, int index,
                    const ClipDefaults& defaults, const Inputs& inputs = {});

/// How the file that a clip begins from is used, in one line: "prompt.image: cat.png: 800 x 600
/// pixels, resized to 720 x 480".
std::string input_text(const Clip& clip, const InputFacts& facts);

/// A text cleaned by clean_prompt, for families whose reference does so; adds a warning to the clip
/// of what the reference would repair. what ("prompt"): for the warning. Errors as clean_prompt.
std::string cleaned_prompt(const std::string& text, Clip& clip, const char* what);

/// Token ids of a text for a model that takes `limit` of them; adds a warning to the clip if words
/// are cut off. what ("prompt"): for the warning.
Encoded encode_text(const Tokenizer& tokenizer, const std::string& text, std::int64_t limit,
                    Clip& clip, const char* what);

/// Token ids of a clip's prompt: the request's own if it gives some, otherwise those of `text`, the
/// prompt as prepared by the model's family. Error(usage) for ids that the model cannot take.
Encoded encode_prompt(const Tokenizer& tokenizer, const ClipRequest& request,
                      const std::string& text, std::int64_t limit, Clip& clip);

/// How many of its first steps a clip made from a video leaves out; 0 for others. Error(usage) if
/// no step would be left.
int skipped_steps(const Clip& clip, const ClipRequest& request);

/// Error(usage) unless height and width of a clip are positive multiples of so many pixels. The
/// message names what gives them, the request or sample.height and sample.width.
void check_size(const Clip& clip, const ClipRequest& request, std::int64_t height_multiple,
                std::int64_t width_multiple, std::int64_t pixels_per_latent);

/// The kinds of clips of a job: those of a kind have the same format and the same settings, except
/// those that may differ in a batch, and so the same shapes, schedule and number of texts.
class ClipKinds {
 public:
  /// → the number of its kind, a new one if there was none like it.
  int add(const Clip& clip);
  /// The first clip of a kind.
  const Clip& operator[](int kind) const { return first_.at(static_cast<std::size_t>(kind)); }
  int size() const { return static_cast<int>(first_.size()); }

 private:
  using Key = std::tuple<ClipSettings, std::int64_t, InputKind>;  // branches
  std::map<Key, int> numbers_;
  std::vector<Clip> first_;
};

/// What is kept of each clip of a job, which may have a million. Clips are made from their requests
/// when they are needed (JobPlan::clip).
struct ClipOutline {
  std::int32_t index = 0;       ///< in the job
  std::int32_t kind = 0;        ///< in ClipKinds
  std::int32_t tokens = 0;      ///< of its longest text
  std::int32_t saved_step = 0;  ///< as Clip::saved_step
};

/// The clips of a job.
struct ClipList {
  std::vector<ClipOutline> clips;
  ClipKinds kinds;
};

/// Those among the clips of a job that it is to make (Job::chosen).
std::vector<ClipOutline> chosen_clips(const Job& job, std::span<const ClipOutline> clips);

/// The folder of the restart file that a clip goes on from: the job's own; without one in it that
/// of the job whose clips it completes (Job::chosen).
std::filesystem::path restart_folder(const Job& job, int clip);

/// Clips that are denoised together: of one kind, with the same first step. Each has its own
/// prompt, seed and noise, and its bits do not depend on the others.
using Batch = std::vector<Clip>;
using BatchOutline = std::vector<ClipOutline>;

/// Groups the clips into batches of at most `max_clips`. Each clip joins the first compatible batch
/// that has room; batches are ordered by their first clips. A clip that decides which of its steps
/// are computed is alone. Linear in the number of clips.
std::vector<BatchOutline> form_batches(std::span<const ClipOutline> clips, const ClipKinds& kinds,
                                       int max_clips);

/// The sum of the sampler steps that clips, as of a batch, still take in this job.
std::int64_t batch_steps(const BatchOutline& batch, const ClipKinds& kinds);
/// The same without steps that are not computed (sampler/step_cache.hpp).
std::int64_t computed_batch_steps(const BatchOutline& batch, const ClipKinds& kinds);

/// "49x480x720": frames, height and width, as data.buckets has them.
std::string shown(const VideoSize& size);

}  // namespace reelmesh
