#pragma once
// What the user asks for, after the input file, the command line and the prompts file are merged.
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

/// One clip as asked for. What is not given comes from the checkpoint and the [sample] section.
struct ClipRequest {
  std::string prompt;
  std::string negative_prompt;
  std::vector<std::int32_t> token_ids;  ///< instead of the prompt's; empty: the prompt is encoded
  std::string where;  ///< where it stands, for messages: "prompts.jsonl:3"; empty: an option
  std::optional<bool> clean;                  ///< as Job::clean_prompts
  std::optional<std::uint64_t> seed;          ///< default: job seed + index
  std::optional<std::int64_t> height, width;  ///< pixels
  std::optional<std::int64_t> frames;
  std::optional<double> fps;
  std::optional<int> steps;
  std::optional<double> guidance;
};

enum class Mode { automatic, split, phased };
enum class Shard { automatic, height, frames, grid };
enum class Order { node, rank };
enum class IfExists { fail, resume, replace };

struct ParallelRequest {
  Mode mode = Mode::automatic;
  Shard shard = Shard::automatic;
  Order order = Order::node;  ///< how ranks take their places: by node, or as launched
  // Ranks of each stage; not given means chosen by the plan.
  std::optional<int> text, replicas, cfg, ulysses, ring, decode;
  std::string device_map = "auto";  ///< "auto", ranges "0-11:0,12-23:1", or a JSON file's path
};

struct Job {
  ModelPaths model;
  std::vector<ClipRequest> clips;
  bool clean_prompts = true;  ///< for models that were trained with cleaned captions

  // [sample], for clips that do not say otherwise
  std::optional<std::int64_t> height, width, frames;
  std::optional<double> fps;
  std::optional<int> steps;
  std::optional<double> guidance;
  bool dynamic_guidance = false;
  std::optional<std::string> scheduler;  ///< "ddim" or "dpm"; default: the checkpoint's
  std::uint64_t seed = 42;
  int batch = 1;  ///< clips of one size that are denoised together, at most

  ParallelRequest parallel;
  Backend backend = Backend::automatic;
  Transport transport = Transport::automatic;
  double device_timeout = 600;  ///< seconds that a rank waits for its device and for others
  std::optional<int> threads;   ///< OpenMP threads a rank; default: the cores it is bound to
  /// Of the ranks, in the order of their places; empty: equal, unless they are to be measured.
  std::vector<double> speeds;
  bool measure_speeds = false;
  /// Bytes that a rank may use: none, one for all ranks, or one for each in the order of places.
  std::vector<std::int64_t> memory_limits;
  DType dtype = DType::float32;
  Numerics numerics;

  std::filesystem::path output;
  bool keep_video = true;
  bool keep_latents = true;
  bool keep_embeddings = false;
  IfExists if_exists = IfExists::fail;

  int trace_level = 1;  ///< 0 off, 1 stages, 2 layers, 3 ops

  /// Every option in effect as "section.key" = "value", in the order of the help, for job.h5.
  std::vector<std::pair<std::string, std::string>> options;
};

}  // namespace reelmesh
