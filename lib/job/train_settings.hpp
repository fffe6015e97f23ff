#pragma once
// What a training job (`reelmesh train`) asks for beside what all jobs have (job/job.hpp). Defaults
// are those of the options; names and formats are in the table of options.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "job/train_method.hpp"
#include "ops/optimizer.hpp"
#include "ops/rate_schedule.hpp"
#include "sampler/training_noise.hpp"
#include "sampler/video_size.hpp"
#include "weights/lora_patterns.hpp"

namespace reelmesh {

/// What becomes of a clip without a caption.
enum class NoCaption { skip, empty };

/// Which frames of a video are a clip: the first ones, those in the middle, some at random, or all,
/// as several clips.
enum class FramesFrom { start, middle, random, all };

/// Which part of a frame is a clip's, where it is higher or wider.
enum class Crop { center, random };

/// A list of clips (.jsonl, .csv) or a folder with them.
struct DataPath {
  std::filesystem::path path;
  double repeat = 1;  ///< how often an epoch has each of its clips, on average; to 3 decimals
};

/// [data]: the clips to learn from.
struct DataSettings {
  std::vector<DataPath> paths;
  /// The same of clips that only validate; empty: the first of `paths`.
  std::vector<DataPath> validation;
  // As clips are trained; unset: those of the model.
  std::optional<std::int64_t> height, width, frames;
  /// Sizes of clips instead: each clip has the one that suits its video. Empty: one size, as above.
  std::vector<VideoSize> buckets;
  std::optional<double> fps;  ///< frames are chosen to have this rate; unset: the model's
  bool own_fps = false;       ///< each video's own rate instead
  FramesFrom frames_from = FramesFrom::start;
  Crop crop = Crop::center;
  double flip = 0;                         ///< probability that a clip is mirrored, left to right
  bool shuffle = true;                     ///< another order in each epoch
  std::string video_field, caption_field;  ///< of a list; empty: any usual name
  std::string caption_prefix;              ///< of all captions, before a space
  NoCaption no_caption = NoCaption::skip;
  bool subfolders = false;      ///< a folder of pairs includes those below it
  bool strict = false;          ///< end at the first clip that cannot be used, and leave out none
  std::filesystem::path cache;  ///< folder of encoded samples; empty: OUT/cache
};

/// [lora]: of methods that train one (TrainMethod::lora).
struct LoraSettings {
  std::int64_t rank = 64;
  std::optional<double> alpha;  ///< unset: the rank
  // Of the modules that a key names, in place of rank and alpha.
  LoraPatterns<std::int64_t> rank_pattern;
  LoraPatterns<double> alpha_pattern;
  std::vector<std::string> targets{"to_q", "to_k", "to_v", "to_out.0"};
  double dropout = 0;          ///< probability that an element of a layer's input is left out
  bool folds_alpha = false;    ///< B is written times alpha / rank, with alpha = rank
  std::filesystem::path init;  ///< a LoRA to go on from; empty: A random, B zero
};

/// Which results of a training are kept beside the last one (OUT/kept).
struct KeepRule {
  enum class What { none, all, last, best };
  What what = What::none;
  std::int64_t count = 0;  ///< last: so many
};

inline constexpr double default_image_dropout = 0.05;

/// [train]
struct TrainSettings {
  DataSettings data;
  const TrainMethod* method = &train_method_named("lora");
  LoraSettings lora;
  std::int64_t steps = 0;
  std::int64_t batch = 1;  ///< clips of a step, of all ranks together
  std::uint64_t seed = 42;
  double learning_rate = 1e-4;
  /// Of the learning rate, after the warm-up.
  const ops::RateSchedule* schedule = &ops::rate_schedule_named("constant");
  ops::RateShape rate_shape;
  double min_rate = 0;      ///< to which the schedule falls
  std::int64_t warmup = 0;  ///< steps in which the rate rises linearly
  bool new_rate = false;    ///< a training that goes on may have another rate than before
  const ops::Optimizer* optimizer = &ops::optimizer_named("adamw");
  ops::OptimizerSettings optimizer_settings;
  std::optional<double> clip = 1.0;  ///< largest global norm of the gradient; unset: no limit
  /// What is written is a running mean of what is trained: mean += (1 − ema)·(value − mean).
  std::optional<double> ema;
  double caption_dropout = 0;                    ///< probability of an empty caption
  double image_dropout = default_image_dropout;  ///< of no image, of models that take one
  /// Of drawn timesteps, of models that have one; unset: the model's.
  std::optional<double> flow_shift;
  /// How timesteps of flows are drawn; unset: as the model says.
  std::optional<TimestepDraw> timesteps;
  std::optional<double> logit_mean, logit_std;  ///< unset: 0 and 1
  std::optional<double> min_snr;                ///< γ; unset: losses are not weighted
  bool samples_posterior = true;  ///< latents are drawn from the posterior, or are its mean
  std::int64_t save_every = 0;    ///< steps between saved states; 0: as [restart] says
  /// Of the results after each save_every steps, or of the one with the least validation loss.
  KeepRule keep;
  std::int64_t validate_every = 0;       ///< steps between validations; 0: none
  std::int64_t sample_every = 0;         ///< steps between clips that are made; 0: none
  std::filesystem::path sample_prompts;  ///< of these clips; empty: captions of the data
  std::optional<int> sample_steps;       ///< unset: as of a job that makes clips
  std::optional<double> sample_guidance;
  bool reproducible = true;  ///< the same bits for every layout
  /// See TrainingMode; unset: a plan decides, by the memory.
  std::optional<bool> recomputes_blocks;
};

}  // namespace reelmesh
