#pragma once
// What the user asks for: input file, command line and prompts file merged.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/seldom.hpp"
#include "job/train_settings.hpp"
#include "plan/machine_times.hpp"
#include "plan/request.hpp"
#include "sampler/clip_settings.hpp"
#include "tensor/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/numerics.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// One clip as requested.
struct ClipRequest {
  std::string prompt;
  std::string negative_prompt;
  std::vector<std::int32_t> token_ids;  ///< instead of the prompt's; empty: tokenize the prompt
  std::string where;          ///< its source, for messages: "prompts.jsonl:3"; empty: an option
  std::optional<bool> clean;  ///< as Job::clean_prompts
  ClipSettings settings;      ///< without seed: job seed + index
  Seldom<std::filesystem::path> image;       ///< first frame; empty: Job::image
  Seldom<std::filesystem::path> video;       ///< clip to change; empty: Job::video
  Seldom<std::filesystem::path> last_image;  ///< last frame, with an image; empty: Job::last_image
  /// That the bytes of image or video, and of last_image, must have; empty: any.
  Seldom<std::string> input_hash, last_image_hash;
};

class SharedRequests;

enum class IfExists { fail, resume, replace };

/// How often clips in progress are saved; 0: never.
struct RestartSettings {
  std::int64_t every_steps = 0;
  double every_seconds = 600;
  bool on_signal = true;  ///< SIGTERM and SIGUSR1 stop the job early and save it
  bool any() const { return every_steps > 0 || every_seconds > 0; }
  /// Whether a clip, or a training, is to be saved after so many steps, so many seconds after it
  /// was saved.
  bool is_due(std::int64_t steps, double seconds) const {
    return (every_steps > 0 && steps % every_steps == 0) ||
           (every_seconds > 0 && seconds >= every_seconds);
  }
};

/// Of a training, whose state is saved sooner than clips take.
inline constexpr double training_saved_every_seconds = 300;

/// What a job does with what an option names.
enum class PathUse {
  input,   ///< reads it: a file, or a folder with files
  cache,   ///< reads and writes files in this folder, which other jobs may use
  output,  ///< the job's own folder
};

/// A file or folder that an option names.
struct GivenPath {
  std::string option;  ///< for messages: "--data.path" or "job.cfg:12: data.path"
  std::filesystem::path path;
  PathUse use;
};

/// How the job was given; recorded in job.h5.
struct JobSource {
  std::vector<std::string> command;  ///< words of the command line
  std::string job_file;              ///< text of the --config file
  /// Options of the command line and the job file, as Job::options.
  std::vector<std::pair<std::string, std::string>> given;
  std::filesystem::path from;  ///< job.h5 of the job that is run again
  std::string weights_hash;    ///< that the checkpoint must have, as `from` says; empty: any
  bool chose_dtype = false;    ///< numerics.dtype is of the command line or of the earlier job
};

struct Job {
  JobSource source;
  std::vector<GivenPath> paths;  ///< of all options
  ModelPaths model;
  std::filesystem::path copies;  ///< folder of each host to which weights are copied; empty: none
  /// To make; of a training: those of train.sample-prompts. Empty if ranks share them: to read
  /// them, use clip_count() and request().
  std::vector<ClipRequest> clips;
  std::shared_ptr<const SharedRequests> shared_clips;  ///< instead of `clips`; null: not shared
  /// Files that clips begin from, unless their requests give others; empty: none. A video is a file
  /// of ffmpeg's formats, or a clip of an earlier job: OUT/clips/000003.h5 or OUT/job.h5:3.
  std::filesystem::path image, last_image, video;
  bool clean_prompts = true;  ///< for models that were trained with cleaned captions

  ClipSettings sample{.seed = 42};  ///< of clips that have no other
  bool dynamic_guidance = false;
  std::optional<std::string> scheduler;  ///< as options list them; default: the checkpoint's
  int batch = 1;  ///< maximum number of clips of one size that are denoised together
  /// Steps after which clips are left: saved, with a preview. None: they are completed.
  std::optional<int> stop_after;
  /// The numbers of the clips of `source.from` that are to be made, ascending, each from its state
  /// that is saved there; empty: all clips, from their beginning.
  std::vector<int> chosen;

  ParallelRequest parallel;
  Backend backend = Backend::automatic;
  Transport transport = Transport::automatic;
  double device_timeout = 600;         ///< seconds without progress after which the job is ended
  std::filesystem::path machine_file;  ///< empty: no times are predicted
  std::shared_ptr<const MachineTimes> machine;  ///< its contents; null without it
  std::optional<int> threads;  ///< OpenMP threads per rank; default: the cores it is bound to
  /// Relative speeds of the ranks, in plan order; empty: equal, or measured if measure_speeds.
  std::vector<double> speeds;
  bool measure_speeds = false;
  /// Bytes that a rank may use: no limit (empty), one for all ranks, or one per rank in plan order.
  std::vector<std::int64_t> memory_limits;
  DType dtype = DType::float32;
  Products products = Products::automatic;  ///< on CPUs
  Numerics numerics;

  std::filesystem::path output;
  bool keep_video = true;
  bool keep_latents = true;
  bool keep_embeddings = false;
  IfExists if_exists = IfExists::fail;
  bool strict = false;  ///< a clip that fails ends the job

  std::optional<TrainSettings> train;  ///< of a training job

  RestartSettings restart;
  /// Seconds after which the job stops early, saved; infinite for none. Default: the time that the
  /// batch system leaves it.
  std::optional<double> max_time;
  bool tune = false;  ///< the first steps of clips choose the layout (pipeline/tuning.hpp)

  int trace_level = 1;  ///< 0 off, 1 stages, 2 layers, 3 ops

  /// All options in effect as "section.key", "value", in the order of --help; written to job.h5.
  std::vector<std::pair<std::string, std::string>> options;

  std::size_t clip_count() const;
  ClipRequest request(std::size_t clip) const;
  /// Host memory that the requests take in a rank, if it does not share them.
  std::int64_t request_bytes() const;
};

}  // namespace reelmesh
