#pragma once
// What the user asks for: input file, command line and prompts file merged.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tensor/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/numerics.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// One clip as requested. Missing values come from the [sample] section and the checkpoint.
struct ClipRequest {
  std::string prompt;
  std::string negative_prompt;
  std::vector<std::int32_t> token_ids;  ///< instead of the prompt's; empty: tokenize the prompt
  std::string where;          ///< its source, for messages: "prompts.jsonl:3"; empty: an option
  std::optional<bool> clean;  ///< as Job::clean_prompts
  std::optional<std::uint64_t> seed;          ///< default: job seed + index
  std::optional<std::int64_t> height, width;  ///< pixels
  std::optional<std::int64_t> frames;
  std::optional<double> fps;
  std::optional<int> steps;
  std::optional<double> guidance;
  std::filesystem::path image;  ///< first frame; empty: Job::image
  std::filesystem::path video;  ///< clip to change; empty: Job::video
  std::string input_hash;       ///< that the bytes of image or video must have; empty: any
  std::optional<double> strength;
};

enum class Mode { automatic, split, phased };
enum class Shard { automatic, height, frames, grid };
enum class Order { node, rank };
/// Where weights are (layout/residence.hpp), or chosen by memory and predicted time.
enum class WeightsChoice { automatic, replicated, sharded, host };
enum class IfExists { fail, resume, replace };

struct ParallelRequest {
  Mode mode = Mode::automatic;
  Shard shard = Shard::automatic;
  Order order = Order::node;  ///< order of ranks in the plan: by node, or as launched
  // Ranks of each stage and sizes of mesh axes; those not given are chosen by the plan.
  std::optional<int> text, replicas, cfg, ulysses, ring, decode;
  /// In split mode: whether text ranks, after the last prompt, and decoding ranks, while nothing
  /// waits, make clips by themselves; and whether replicas decode their clips while others wait for
  /// the decoding ranks. Not options: the plan of a job chooses them by memory.
  bool text_denoises = false, decode_denoises = false, replicas_decode = false;
  WeightsChoice weights = WeightsChoice::automatic;  ///< of the transformer
  /// Of the text encoder; default: as `weights`, where sharded is automatic: its layers are divided
  /// among the ranks in any case.
  std::optional<WeightsChoice> text_weights;
  std::optional<WeightsChoice> decode_weights;  ///< default: host if `weights` is, else automatic
  std::string device_map = "auto";  ///< "auto", ranges "0-11:0,12-23:1", or a JSON file's path
};

/// How often the clips in work are saved; 0: never.
struct RestartSettings {
  std::int64_t every_steps = 0;
  double every_seconds = 600;
  bool on_signal = true;  ///< SIGTERM and SIGUSR1 stop the job early and save it
  bool any() const { return every_steps > 0 || every_seconds > 0; }
};

/// How the job was given; recorded in job.h5.
struct JobSource {
  std::vector<std::string> command;  ///< words of the command line
  std::string job_file;              ///< text of the --config file
  /// Options of the command line and the job file, as Job::options.
  std::vector<std::pair<std::string, std::string>> given;
  std::filesystem::path from;  ///< job.h5 of the job that is run again
  std::string weights_hash;    ///< that the checkpoint must have, as `from` says; empty: any
};

struct Job {
  JobSource source;
  ModelPaths model;
  std::vector<ClipRequest> clips;
  /// Files that clips begin from, unless their requests give others; empty: none. A video is a file
  /// of ffmpeg's formats, or a clip of an earlier job: OUT/clips/000003.h5 or OUT/job.h5:3.
  std::filesystem::path image, video;
  /// Video to video: the share of the steps that is computed, from noise of that level on.
  std::optional<double> strength;
  bool clean_prompts = true;  ///< for models that were trained with cleaned captions

  // [sample]: defaults of the clips
  std::optional<std::int64_t> height, width, frames;
  std::optional<double> fps;
  std::optional<int> steps;
  std::optional<double> guidance;
  bool dynamic_guidance = false;
  std::optional<std::string> scheduler;  ///< "ddim" or "dpm"; default: the checkpoint's
  std::uint64_t seed = 42;
  int batch = 1;  ///< maximum number of clips of one size that are denoised together

  ParallelRequest parallel;
  Backend backend = Backend::automatic;
  Transport transport = Transport::automatic;
  double device_timeout = 600;  ///< seconds without progress after which the job is ended
  std::optional<int> threads;   ///< OpenMP threads per rank; default: the cores it is bound to
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

  RestartSettings restart;
  /// Seconds after which the job stops early, saved; infinite for none. Default: the time that the
  /// batch system leaves it.
  std::optional<double> max_time;

  int trace_level = 1;  ///< 0 off, 1 stages, 2 layers, 3 ops

  /// All options in effect as "section.key", "value", in the order of --help; written to job.h5.
  std::vector<std::pair<std::string, std::string>> options;
};

}  // namespace reelmesh
