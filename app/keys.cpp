#include "keys.hpp"

#include <array>
#include <regex>

#include "base/error.hpp"
#include "base/units.hpp"
#include "values.hpp"

namespace reelmesh::app {
namespace {

using Text = std::string_view;
using Option = const std::string&;

constexpr std::array<Text, 3> modes{"auto", "split", "phased"};
constexpr std::array<Text, 4> shards{"auto", "height", "frames", "grid"};
constexpr std::array<Text, 2> orders{"node", "rank"};
constexpr std::array<Text, 2> schedulers{"ddim", "dpm"};
constexpr std::array<Text, 3> backends{"auto", "cpu", "cuda"};
constexpr std::array<Text, 3> transports{"auto", "nccl", "mpi"};
constexpr std::array<Text, 2> attentions{"auto", "own"};
constexpr std::array<Text, 3> dtypes{"float32", "bfloat16", "float16"};
constexpr std::array<Text, 3> if_exists{"fail", "resume", "replace"};
constexpr std::array<Text, 4> levels{"off", "stages", "layers", "ops"};

std::string parse_path(Text text, Option option) {
  require(!text.empty(), Status::usage, "{}: is empty, expected a path", option);
  require_text(text, option);
  return std::string(text);
}

std::string parse_prompt(Text text, Option option) {
  require_text(text, option);
  return std::string(text);
}

std::string parse_device_map(Text text, Option option) {
  static const std::regex ranges("\\d+(-\\d+)?:\\d+(,\\d+(-\\d+)?:\\d+)*");
  const std::string map(text);
  require(map == "auto" || map.ends_with(".json") || std::regex_match(map, ranges), Status::usage,
          "{}: '{}' is not auto, ranges of layers such as 0-11:0,12-23:1, or a .json file", option,
          map);
  return map;
}

std::optional<int> parse_cfg(Text text, Option option) {
  const std::optional<int> ranks = parse_ranks(text, option);
  require(ranks.value_or(1) <= 2, Status::usage, "{}: '{}' is not auto, 1 or 2", option, text);
  return ranks;
}

DType parse_dtype(Text text, Option option, Backend backend) {
  constexpr std::array types{DType::float32, DType::bfloat16, DType::float16};
  const DType dtype = types[parse_choice(text, option, dtypes)];
  require(dtype != DType::float16 || backend == Backend::cuda, Status::usage,
          "{}: the CPU backend computes float32 and bfloat16, found float16, which needs "
          "device.backend = cuda",
          option);
  return dtype;
}

double parse_wait(Text text, Option option) {
  const double seconds = parse_seconds(text, option);
  require(seconds > 0, Status::usage, "{}: '{}' leaves no time to wait", option, text);
  return seconds;
}

std::optional<int> parse_threads(Text text, Option option) {
  if (text == "auto") return std::nullopt;
  return static_cast<int>(parse_integer(text, option, 1, 4096));
}

// One number a rank; none for equal or measured speeds.
std::vector<double> parse_speeds(Text text, Option option) {
  std::vector<double> speeds;
  if (text == "equal" || text == "auto") return speeds;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    speeds.push_back(parse_number(text.substr(begin, end - begin), option, 1e-3, 1e6));
    begin = end + 1;
  }
  return speeds;
}

// One size for all ranks, or one a rank.
std::vector<std::int64_t> parse_limits(Text text, Option option) {
  std::vector<std::int64_t> limits;
  for (std::size_t begin = 0; text != "none" && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    limits.push_back(parse_bytes(text.substr(begin, end - begin), option));
    require(limits.back() > 0, Status::usage, "{}: '{}' is not a size above 0", option, text);
    begin = end + 1;
  }
  return limits;
}

const Key table[] = {
    {"model.path", "DIR", "folder of the checkpoint, with model_index.json (required)", nullptr,
     [](Draft& d, Text text, Option option) { d.job.model.root = parse_path(text, option); }},
    {"model.transformer", "DIR", "folder of this part, if not transformer/ in model.path", nullptr,
     [](Draft& d, Text text, Option option) {
       d.job.model.transformer = parse_path(text, option);
     }},
    {"model.vae", "DIR", "folder of this part, if not vae/ in model.path", nullptr,
     [](Draft& d, Text text, Option option) { d.job.model.vae = parse_path(text, option); }},
    {"model.text-encoder", "DIR", "folder of this part, if not text_encoder/ in model.path",
     nullptr,
     [](Draft& d, Text text, Option option) {
       d.job.model.text_encoder = parse_path(text, option);
     }},
    {"model.tokenizer", "DIR", "folder of this part, if not tokenizer/ in model.path", nullptr,
     [](Draft& d, Text text, Option option) { d.job.model.tokenizer = parse_path(text, option); }},
    {"model.scheduler", "DIR", "folder of this part, if not scheduler/ in model.path", nullptr,
     [](Draft& d, Text text, Option option) { d.job.model.scheduler = parse_path(text, option); }},

    {"prompt.text", "TEXT", "a prompt; repeat it for more clips", nullptr,
     [](Draft& d, Text text, Option option) { d.texts.push_back(parse_prompt(text, option)); },
     true},
    {"prompt.file", "FILE",
     "more prompts, after those of prompt.text: .txt with one a line (# begins a comment line), or "
     ".jsonl with an object a line: prompt or token_ids, negative_prompt, clean, seed, height, "
     "width, frames, fps, steps, guidance. Prompts on the command line replace all those of the "
     "job file",
     nullptr, [](Draft& d, Text text, Option option) { d.prompt_file = parse_path(text, option); }},
    {"prompt.negative", "TEXT", "what the clips should not show; default: the empty prompt",
     nullptr, [](Draft& d, Text text, Option option) { d.negative = parse_prompt(text, option); }},
    {"prompt.clean", "YES|NO",
     "Open-Sora: clean prompts as the captions of its training were cleaned; no where they are "
     "already",
     "yes",
     [](Draft& d, Text text, Option option) { d.job.clean_prompts = parse_switch(text, option); }},

    {"sample.height", "PIXELS", "8 to 16384; default: the checkpoint's", nullptr,
     [](Draft& d, Text text, Option option) { d.job.height = parse_pixels(text, option); }},
    {"sample.width", "PIXELS", "8 to 16384; default: the checkpoint's", nullptr,
     [](Draft& d, Text text, Option option) { d.job.width = parse_pixels(text, option); }},
    {"sample.frames", "N", "frames of a clip, 1 to 10000; default: the checkpoint's", nullptr,
     [](Draft& d, Text text, Option option) { d.job.frames = parse_frames(text, option); }},
    {"sample.fps", "N", "frames per second, 0.01 to 1000; default: the checkpoint's", nullptr,
     [](Draft& d, Text text, Option option) { d.job.fps = parse_fps(text, option); }},
    {"sample.steps", "N", "steps of the sampler, 1 to 1000; default: the model family's", nullptr,
     [](Draft& d, Text text, Option option) { d.job.steps = parse_steps(text, option); }},
    {"sample.guidance", "SCALE",
     "how strongly the prompt is followed, 0 to 1000; above 1 the negative prompt counts; default: "
     "the model family's",
     nullptr,
     [](Draft& d, Text text, Option option) { d.job.guidance = parse_guidance(text, option); }},
    {"sample.dynamic-guidance", "YES|NO", "let the guidance change over the steps", "no",
     [](Draft& d, Text text, Option option) {
       d.job.dynamic_guidance = parse_switch(text, option);
     }},
    {"sample.scheduler", "NAME", "ddim or dpm; default: the checkpoint's", nullptr,
     [](Draft& d, Text text, Option option) {
       d.job.scheduler = schedulers[parse_choice(text, option, schedulers)];
     }},
    {"sample.seed", "N", "seed of the first clip; clip i uses seed + i", "42",
     [](Draft& d, Text text, Option option) { d.job.seed = parse_seed(text, option); }},
    {"sample.batch", "N",
     "clips that a denoising group works on together, 1 to 1000, where they have the same size, "
     "frames, fps, steps and guidance; takes memory, changes no bits",
     "1",
     [](Draft& d, Text text, Option option) {
       d.job.batch = static_cast<int>(parse_integer(text, option, 1, 1000));
     }},

    {"parallel.mode", "MODE",
     "split: text, denoising and decoding have ranks of their own; phased: all ranks do each stage "
     "in turn; or auto",
     "auto",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.mode = static_cast<Mode>(parse_choice(text, option, modes));
     }},
    {"parallel.text", "N|auto", "ranks that encode prompts", "auto",
     [](Draft& d, Text text, Option option) { d.job.parallel.text = parse_ranks(text, option); }},
    {"parallel.replicas", "N|auto", "denoising groups, each with clips of its own", "auto",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.replicas = parse_ranks(text, option);
     }},
    {"parallel.cfg", "1|2|auto",
     "2: each half of a denoising group works on one of the two branches of guidance", "auto",
     [](Draft& d, Text text, Option option) { d.job.parallel.cfg = parse_cfg(text, option); }},
    {"parallel.ulysses", "N|auto",
     "ranks that exchange tokens for heads in attention. A denoising group has cfg x ring x "
     "ulysses "
     "ranks; what is auto is chosen by bytes sent and balance",
     "auto",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.ulysses = parse_ranks(text, option);
     }},
    {"parallel.ring", "N|auto", "parts into which attention cuts the queries; keys come to all",
     "auto",
     [](Draft& d, Text text, Option option) { d.job.parallel.ring = parse_ranks(text, option); }},
    {"parallel.decode", "N|auto", "ranks that decode", "auto",
     [](Draft& d, Text text, Option option) { d.job.parallel.decode = parse_ranks(text, option); }},
    {"parallel.shard", "AXES", "what of the latents is cut: height, frames, grid (both) or auto",
     "auto",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.shard = static_cast<Shard>(parse_choice(text, option, shards));
     }},
    {"parallel.order", "ORDER",
     "how ranks take their places: node by node, so that those that talk most share one, or as "
     "the launcher numbers them (rank)",
     "node",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.order = static_cast<Order>(parse_choice(text, option, orders));
     }},
    {"parallel.device-map", "MAP",
     "which text rank holds which layers of the text encoder: auto, ranges such as "
     "0-11:0,12-23:1, or a .json file as accelerate writes it",
     "auto",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.device_map = parse_device_map(text, option);
     }},

    {"device.backend", "NAME",
     "cpu, cuda (one GPU a rank), or auto: cuda where this build and this host have it", "auto",
     [](Draft& d, Text text, Option option) {
       d.job.backend = static_cast<Backend>(parse_choice(text, option, backends));
     }},
    {"device.transport", "NAME",
     "how tensors travel between GPUs: nccl, mpi (through memory of the host, for ranks that share "
     "a GPU), or auto: nccl where every rank has a GPU of its own and NCCL is there",
     "auto",
     [](Draft& d, Text text, Option option) {
       d.job.transport = static_cast<Transport>(parse_choice(text, option, transports));
     }},
    {"device.timeout", "TIME",
     "how long a rank waits for its GPU and for other ranks' messages to it before it ends the job "
     "(status 76), such as 90s or 10min",
     "10min",
     [](Draft& d, Text text, Option option) { d.job.device_timeout = parse_wait(text, option); }},
    {"device.threads", "N|auto", "threads of a rank; auto: the cores it is bound to", "auto",
     [](Draft& d, Text text, Option option) { d.job.threads = parse_threads(text, option); }},
    {"device.memory-limit", "SIZES",
     "memory that a rank may use, such as 16GiB; a list such as 16GiB,16GiB,8GiB (one a rank) "
     "gives each rank a limit of its own. The plan keeps to it, or the job is refused (status 69); "
     "none: no limit",
     "none",
     [](Draft& d, Text text, Option option) { d.job.memory_limits = parse_limits(text, option); }},
    {"device.speeds", "LIST",
     "how fast ranks are compared with one another, by which their parts are cut: equal, numbers "
     "such as 1,1,2.5,2.5 (one a rank), or auto: measured at the start",
     "equal",
     [](Draft& d, Text text, Option option) {
       d.job.measure_speeds = text == "auto";
       d.job.speeds = parse_speeds(text, option);
     }},

    {"numerics.dtype", "TYPE", "float32 or bfloat16, or with device.backend = cuda float16",
     "float32",
     [](Draft& d, Text text, Option option) {  // behind device.backend in this table
       d.job.dtype = parse_dtype(text, option, d.job.backend);
     }},
    {"numerics.tf32", "YES|NO",
     "whether products of float32 numbers on GPUs may round their factors to TF32", "no",
     [](Draft& d, Text text, Option option) { d.job.numerics.tf32 = parse_switch(text, option); }},
    {"numerics.reproducible", "YES|NO",
     "the same bits for every layout; no: GPUs may choose their products by the number of rows, "
     "too (CPUs have nothing that would be faster)",
     "yes",
     [](Draft& d, Text text, Option option) {
       d.job.numerics.reproducible = parse_switch(text, option);
     }},
    {"numerics.attention", "auto|own",
     "own: attention on GPUs by kernels of this program alone; auto: by cuDNN's for 16-bit numbers "
     "and 512 keys or more, where it has one",
     "auto",
     [](Draft& d, Text text, Option option) {
       d.job.numerics.own_attention = parse_choice(text, option, attentions) == 1;
     }},

    {"output.path", "DIR", "folder for the results (required)", nullptr,
     [](Draft& d, Text text, Option option) { d.job.output = parse_path(text, option); }},
    {"output.video", "YES|NO", "keep the video", "yes",
     [](Draft& d, Text text, Option option) { d.job.keep_video = parse_switch(text, option); }},
    {"output.latents", "YES|NO", "keep the latents", "yes",
     [](Draft& d, Text text, Option option) { d.job.keep_latents = parse_switch(text, option); }},
    {"output.embeddings", "YES|NO", "keep the embeddings of the prompts", "no",
     [](Draft& d, Text text, Option option) {
       d.job.keep_embeddings = parse_switch(text, option);
     }},
    {"output.if-exists", "DO", "where output.path has a job: fail, resume or replace", "fail",
     [](Draft& d, Text text, Option option) {
       d.job.if_exists = static_cast<IfExists>(parse_choice(text, option, if_exists));
     }},

    {"trace.level", "LEVEL", "what trace.h5 records: off, stages, layers or ops", "stages",
     [](Draft& d, Text text, Option option) {
       d.job.trace_level = static_cast<int>(parse_choice(text, option, levels));
     }},
};

}  // namespace

std::span<const Key> keys() { return table; }

}  // namespace reelmesh::app
