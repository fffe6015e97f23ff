#include "keys.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/trace.hpp"
#include "base/units.hpp"
#include "values.hpp"
#include "weights/lora.hpp"

namespace reelmesh::app {
namespace {

using Text = std::string_view;
using Option = const std::string&;

constexpr std::array<Text, 3> modes{"auto", "split", "phased"};
constexpr std::array<Text, 4> shards{"auto", "height", "frames", "grid"};
constexpr std::array<Text, 2> orders{"node", "rank"};
constexpr std::array<Text, 4> weights{"auto", "replicated", "sharded", "host"};
constexpr std::array<Text, 4> part_weights{"same", "auto", "replicated", "host"};
constexpr std::array<std::optional<WeightsChoice>, 4> choices_of_part{
    std::nullopt, WeightsChoice::automatic, WeightsChoice::replicated, WeightsChoice::host};
constexpr std::array<Text, 2> schedulers{"ddim", "dpm"};
constexpr std::array<Text, 3> backends{"auto", "cpu", "cuda"};
constexpr std::array<Text, 3> transports{"auto", "nccl", "mpi"};
constexpr std::array<Text, 2> attentions{"auto", "own"};
constexpr std::array<Text, 3> products{"auto", "bfloat16", "float32"};  // as enum Products
constexpr std::array<Text, 3> dtypes{"float32", "bfloat16", "float16"};
constexpr std::array<Text, 3> if_exists{"fail", "resume", "replace"};

std::string parse_prompt(Text text, Option option) {
  require_prompt(text, option);
  return std::string(text);
}

// Removes a number at the start of the text; false if there is none.
bool skip_number(Text& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(digits);
  return digits > 0;
}

bool skip(Text& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

// "0-11:0,12:1". The text is parsed by hand: std::regex recurses for each character.
bool is_device_map(Text text) {
  do {
    if (!skip_number(text) || (skip(text, '-') && !skip_number(text))) return false;
    if (!skip(text, ':') || !skip_number(text)) return false;
    constexpr Text on_host = "@host";
    if (text.starts_with(on_host)) text.remove_prefix(on_host.size());
  } while (skip(text, ','));
  return text.empty();
}

std::string parse_device_map(Text text, Option option) {
  require(
      text == "auto" || text.ends_with(".json") || is_device_map(text), Status::usage,
      "{}: found '{}', expected auto, ranges (layers:rank) such as 0-11:0,12-23:1, or a .json file",
      option, text);
  return std::string(text);
}

std::optional<int> parse_cfg(Text text, Option option) {
  const std::optional<int> ranks = parse_ranks(text, option);
  require(ranks.value_or(1) <= 2, Status::usage, "{}: found '{}', expected auto, 1 or 2", option,
          text);
  return ranks;
}

DType parse_dtype(Text text, Option option, Backend backend) {
  constexpr std::array types{DType::float32, DType::bfloat16, DType::float16};
  const DType dtype = types[parse_choice(text, option, dtypes)];
  require(dtype != DType::float16 || backend == Backend::cuda, Status::usage,
          "{}: found float16, expected float32 or bfloat16; float16 needs device.backend = cuda",
          option);
  return dtype;
}

// "20": steps; "10min": a time; "none".
void set_restart(RestartSettings& settings, Text text, Option option) {
  settings.every_steps = 0;
  settings.every_seconds = 0;
  if (text == "none") return;
  if (text.find_first_not_of("0123456789") == Text::npos) {
    settings.every_steps = parse_integer(text, option, 1, 1000);
  } else {
    settings.every_seconds = parse_wait(text, option);
  }
}

std::optional<int> parse_threads(Text text, Option option) {
  if (text == "auto") return std::nullopt;
  return static_cast<int>(parse_integer(text, option, 1, 4096));
}

// One number per rank; empty for equal or measured speeds.
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

// One size for all ranks, or one per rank.
std::vector<std::int64_t> parse_limits(Text text, Option option) {
  std::vector<std::int64_t> limits;
  for (std::size_t begin = 0; text != "none" && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    limits.push_back(parse_bytes(text.substr(begin, end - begin), option));
    require(limits.back() > 0, Status::usage,
            "{}: found '{}', expected a size above 0 such as 16GiB", option, text);
    begin = end + 1;
  }
  return limits;
}

void add_lora(std::vector<LoraFile>& loras, Text text, Option option) {
  if (text == "none") {
    loras.clear();
    return;
  }
  loras.push_back(parse_lora(text, option));
  require(loras.size() <= max_loras, Status::usage, "{}: found {} files, expected at most {}",
          option, loras.size(), max_loras);
}

const Key table[] = {
    {"model.path", "DIR", "checkpoint in the diffusers layout, with model_index.json (required)",
     nullptr,
     [](Draft& d, Text text, Option option) { d.job.model.root = parse_path(text, option); }},
    {"model.transformer", "DIR", "folder of the transformer [default: transformer/ in model.path]",
     nullptr,
     [](Draft& d, Text text, Option option) {
       d.job.model.transformer = parse_path(text, option);
     }},
    {"model.vae", "DIR", "folder of the VAE [default: vae/ in model.path]", nullptr,
     [](Draft& d, Text text, Option option) { d.job.model.vae = parse_path(text, option); }},
    {"model.text-encoder", "DIR", "folder of T5 [default: text_encoder/ in model.path]", nullptr,
     [](Draft& d, Text text, Option option) {
       d.job.model.text_encoder = parse_path(text, option);
     }},
    {"model.tokenizer", "DIR", "folder of the tokenizer [default: tokenizer/ in model.path]",
     nullptr,
     [](Draft& d, Text text, Option option) { d.job.model.tokenizer = parse_path(text, option); }},
    {"model.scheduler", "DIR",
     "folder of the scheduler's config [default: scheduler/ in model.path]", nullptr,
     [](Draft& d, Text text, Option option) { d.job.model.scheduler = parse_path(text, option); }},
    {"model.lora", "FILE[:SCALE]",
     "LoRA of the transformer in safetensors, as diffusers or PEFT write it, or a folder with it; "
     "repeat the option for more, which add up. SCALE multiplies its changes [default: 1]. none: "
     "no LoRA, for a job file that has some",
     nullptr, [](Draft& d, Text text, Option option) { add_lora(d.job.model.loras, text, option); },
     true},

    {"prompt.text", "TEXT", "a prompt; repeat the option for more clips", nullptr,
     [](Draft& d, Text text, Option option) { d.texts.push_back(parse_prompt(text, option)); },
     true},
    {"prompt.file", "FILE",
     "more prompts. FILE.txt: one a line, # starts a comment line. FILE.jsonl: one object a line "
     "with prompt (or token_ids), and optionally negative_prompt, clean, seed, height, width, "
     "frames, fps, steps, guidance, image or video (paths relative to the current folder), "
     "strength. Prompts on the command line replace all prompts of the job file",
     nullptr, [](Draft& d, Text text, Option option) { d.prompt_file = parse_path(text, option); }},
    {"prompt.image", "FILE",
     "the image that clips begin from, for image-to-video checkpoints: PNG or JPEG, resized to the "
     "clip's size",
     nullptr, [](Draft& d, Text text, Option option) { d.job.image = parse_path(text, option); }},
    {"prompt.video", "FILE",
     "the video that clips are made from, for text-to-video checkpoints: a format of ffmpeg's "
     "libraries, or a clip of an earlier job as OUT/clips/000003.h5 or OUT/job.h5:3. It gives "
     "sample.frames and sample.fps unless they are given; its first frames are used, resized to "
     "the clip's size",
     nullptr, [](Draft& d, Text text, Option option) { d.job.video = parse_path(text, option); }},
    {"prompt.negative", "TEXT", "negative prompt [default: the empty prompt]", nullptr,
     [](Draft& d, Text text, Option option) { d.negative = parse_prompt(text, option); }},
    {"prompt.clean", "YES|NO",
     "Open-Sora: normalise prompts like its training captions; no if they already are", "yes",
     [](Draft& d, Text text, Option option) { d.job.clean_prompts = parse_switch(text, option); }},

    {"sample.height", "PIXELS", "8 to 16384 [default: the checkpoint's]", nullptr,
     [](Draft& d, Text text, Option option) { d.job.height = parse_pixels(text, option); }},
    {"sample.width", "PIXELS", "8 to 16384 [default: the checkpoint's]", nullptr,
     [](Draft& d, Text text, Option option) { d.job.width = parse_pixels(text, option); }},
    {"sample.frames", "N", "frames of a clip, 1 to 10000 [default: the checkpoint's]", nullptr,
     [](Draft& d, Text text, Option option) { d.job.frames = parse_frames(text, option); }},
    {"sample.fps", "N", "frames per second, 0.01 to 1000 [default: the checkpoint's]", nullptr,
     [](Draft& d, Text text, Option option) { d.job.fps = parse_fps(text, option); }},
    {"sample.steps", "N", "denoising steps, 1 to 1000 [default: the model family's]", nullptr,
     [](Draft& d, Text text, Option option) { d.job.steps = parse_steps(text, option); }},
    {"sample.guidance", "SCALE",
     "classifier-free guidance scale, 0 to 1000; up to 1 there is no guidance and the negative "
     "prompt is not used [default: the model family's]",
     nullptr,
     [](Draft& d, Text text, Option option) { d.job.guidance = parse_guidance(text, option); }},
    {"sample.strength", "SHARE",
     "with prompt.video: the share of the steps that is computed, from noise of that level on; "
     "above 0, at most 1 [default: 0.8]",
     nullptr,
     [](Draft& d, Text text, Option option) { d.job.strength = parse_strength(text, option); }},
    {"sample.dynamic-guidance", "YES|NO",
     "CogVideoX: vary the guidance scale over the steps (use_dynamic_cfg of diffusers)", "no",
     [](Draft& d, Text text, Option option) {
       d.job.dynamic_guidance = parse_switch(text, option);
     }},
    {"sample.scheduler", "NAME", "CogVideoX: ddim or dpm [default: the checkpoint's]", nullptr,
     [](Draft& d, Text text, Option option) {
       d.job.scheduler = schedulers[parse_choice(text, option, schedulers)];
     }},
    {"sample.seed", "N", "seed of the initial noise; clip i uses seed + i", "42",
     [](Draft& d, Text text, Option option) { d.job.seed = parse_seed(text, option); }},
    {"sample.batch", "N",
     "clips of the same format that a denoising group computes together, 1 to 1000; more memory, "
     "same bits",
     "1",
     [](Draft& d, Text text, Option option) {
       d.job.batch = static_cast<int>(parse_integer(text, option, 1, 1000));
     }},

    {"output.path", "DIR", "folder for the results (required)", nullptr,
     [](Draft& d, Text text, Option option) { d.job.output = parse_path(text, option); }},
    {"output.video", "YES|NO", "write the video", "yes",
     [](Draft& d, Text text, Option option) { d.job.keep_video = parse_switch(text, option); }},
    {"output.latents", "YES|NO", "write the final latents", "yes",
     [](Draft& d, Text text, Option option) { d.job.keep_latents = parse_switch(text, option); }},
    {"output.embeddings", "YES|NO", "write the prompt embeddings", "no",
     [](Draft& d, Text text, Option option) {
       d.job.keep_embeddings = parse_switch(text, option);
     }},
    {"output.if-exists", "DO",
     "if output.path already has a job: fail, resume (make only the clips that are missing) or "
     "replace",
     "fail",
     [](Draft& d, Text text, Option option) {
       d.job.if_exists = static_cast<IfExists>(parse_choice(text, option, if_exists));
     }},
    {"output.strict", "YES|NO",
     "end the job at the first clip that fails; otherwise other clips go on", "no",
     [](Draft& d, Text text, Option option) { d.job.strict = parse_switch(text, option); }},

    {"restart.every", "N|TIME|none",
     "save the clips in work every N denoising steps, or after a time such as 10min; a job that "
     "ends "
     "early goes on from there with output.if-exists = resume",
     "10min", [](Draft& d, Text text, Option option) { set_restart(d.job.restart, text, option); }},
    {"restart.on-signal", "YES|NO",
     "SIGTERM, SIGUSR1 and SIGXCPU stop the job after the current step, saved, with status 75; a "
     "second one ends it at once",
     "yes",
     [](Draft& d, Text text, Option option) {
       d.job.restart.on_signal = parse_switch(text, option);
     }},

    {"parallel.mode", "MODE",
     "split: text, denoising and decoding have separate ranks; phased: all ranks do each stage in "
     "turn; auto",
     "auto",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.mode = static_cast<Mode>(parse_choice(text, option, modes));
     }},
    {"parallel.text", "N|auto", "ranks for the text encoder", "auto",
     [](Draft& d, Text text, Option option) { d.job.parallel.text = parse_ranks(text, option); }},
    {"parallel.replicas", "N|auto",
     "groups of ranks that make different clips at the same time; auto: as many as make all clips "
     "soonest. A group has cfg x ring x ulysses ranks",
     "auto",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.replicas = parse_ranks(text, option);
     }},
    {"parallel.cfg", "1|2|auto",
     "2: conditional and unconditional branch of guidance on different ranks", "auto",
     [](Draft& d, Text text, Option option) { d.job.parallel.cfg = parse_cfg(text, option); }},
    {"parallel.ulysses", "N|auto",
     "ranks that exchange tokens for heads around attention (DeepSpeed-Ulysses)", "auto",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.ulysses = parse_ranks(text, option);
     }},
    {"parallel.ring", "N|auto",
     "ranks that each compute attention for a part of the queries, over all keys", "auto",
     [](Draft& d, Text text, Option option) { d.job.parallel.ring = parse_ranks(text, option); }},
    {"parallel.decode", "N|auto", "ranks for the decoder", "auto",
     [](Draft& d, Text text, Option option) { d.job.parallel.decode = parse_ranks(text, option); }},
    {"parallel.shard", "AXES",
     "axes of the latents that are cut: height, frames, grid (both) or auto", "auto",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.shard = static_cast<Shard>(parse_choice(text, option, shards));
     }},
    {"parallel.order", "ORDER",
     "node: ranks that exchange most are placed on one node; rank: the launcher's order", "node",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.order = static_cast<Order>(parse_choice(text, option, orders));
     }},
    {"parallel.weights", "PLACE",
     "weights of the transformer's linear layers: replicated (whole on each rank), sharded "
     "(divided among the ranks of a denoising group, gathered before each use), host (fetched from "
     "host memory before each use), or auto: replicated if they fit device.memory-limit. Changes "
     "no bit of the results",
     "auto",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.weights = static_cast<WeightsChoice>(parse_choice(text, option, weights));
     }},
    {"parallel.text-weights", "PLACE",
     "weights of the text encoder's layers on their ranks: replicated (all stay), host, auto (host "
     "for those that do not fit) or same (as parallel.weights, but auto if that is sharded)",
     "same",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.text_weights = choices_of_part.at(parse_choice(text, option, part_weights));
     }},
    {"parallel.decode-weights", "PLACE",
     "weights of the decoder: replicated (they stay), host (loaded for each round of clips, "
     "unloaded after it), auto: host if device.memory-limit needs it, or same (host if "
     "parallel.weights is host, otherwise auto)",
     "same",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.decode_weights = choices_of_part.at(parse_choice(text, option, part_weights));
     }},
    {"parallel.device-map", "MAP",
     "ranks of the text encoder's layers: auto, ranges (layers:rank) such as 0-11:0,12-23:1, or a "
     ".json device map of accelerate; layers:rank@host, or \"cpu\" and \"disk\" in a file: weights "
     "on the host",
     "auto",
     [](Draft& d, Text text, Option option) {
       d.job.parallel.device_map = parse_device_map(text, option);
     }},

    {"device.backend", "NAME",
     "cpu, cuda (one GPU a rank), or auto: cuda if this build and all hosts have it", "auto",
     [](Draft& d, Text text, Option option) {
       d.job.backend = static_cast<Backend>(parse_choice(text, option, backends));
     }},
    {"device.transport", "NAME",
     "messages between GPUs: nccl; mpi (through host memory, also for ranks that share a GPU); "
     "auto: nccl if it is installed and no ranks share a GPU",
     "auto",
     [](Draft& d, Text text, Option option) {
       d.job.transport = static_cast<Transport>(parse_choice(text, option, transports));
     }},
    {"device.timeout", "TIME",
     "longest time without a sign of life from a rank, without progress of all ranks, or for a GPU "
     "to finish its work, before the job ends with status 76, such as 90s or 10min",
     "10min",
     [](Draft& d, Text text, Option option) { d.job.device_timeout = parse_wait(text, option); }},
    {"device.threads", "N|auto", "threads of a rank; auto: one for each core it is bound to",
     "auto",
     [](Draft& d, Text text, Option option) { d.job.threads = parse_threads(text, option); }},
    {"device.memory-limit", "SIZES",
     "memory a rank may use: none, 16GiB, or a list with one size for each rank such as "
     "16GiB,16GiB,8GiB. A job that cannot keep to it is refused (status 69)",
     "none",
     [](Draft& d, Text text, Option option) { d.job.memory_limits = parse_limits(text, option); }},
    {"device.speeds", "LIST",
     "relative speeds of the ranks; work is divided in proportion. equal, a list with one number "
     "for each rank such as 1,1,2.5,2.5, or auto (measured at the start)",
     "equal",
     [](Draft& d, Text text, Option option) {
       d.job.measure_speeds = text == "auto";
       d.job.speeds = parse_speeds(text, option);
     }},

    {"numerics.dtype", "TYPE", "float32 or bfloat16; float16 on GPUs only", "float32",
     [](Draft& d, Text text, Option option) {  // must come after device.backend in this table
       d.job.dtype = parse_dtype(text, option, d.job.backend);
     }},
    {"numerics.products", "auto|TYPE",
     "CPUs, with dtype bfloat16: input type of matrix products, attention and convolutions. "
     "bfloat16 needs AVX-512; float32 computes them exactly; auto takes bfloat16 on processors "
     "with AMX and on AMD's with AVX512_BF16. Changes bits",
     "auto",
     [](Draft& d, Text text, Option option) {
       d.job.products = static_cast<Products>(parse_choice(text, option, products));
     }},
    {"numerics.tf32", "YES|NO", "GPUs: allow TF32 in float32 matrix products", "no",
     [](Draft& d, Text text, Option option) { d.job.numerics.tf32 = parse_switch(text, option); }},
    {"numerics.reproducible", "YES|NO",
     "same bits for every layout. no: GPUs may choose the algorithm of a matrix product by its "
     "local number of rows; CPUs ignore it",
     "yes",
     [](Draft& d, Text text, Option option) {
       d.job.numerics.reproducible = parse_switch(text, option);
     }},
    {"numerics.attention", "auto|own",
     "GPUs: own uses only the attention kernels of this program; auto uses cuDNN's for 16-bit "
     "types and at least 512 keys, if it has one",
     "auto",
     [](Draft& d, Text text, Option option) {
       d.job.numerics.own_attention = parse_choice(text, option, attentions) == 1;
     }},

    {"trace.level", "LEVEL", "detail of trace.h5: off, stages, layers or ops", "stages",
     [](Draft& d, Text text, Option option) {
       d.job.trace_level = static_cast<int>(parse_choice(text, option, trace::level_names));
     }},
};

}  // namespace

std::span<const Key> keys() { return table; }

}  // namespace reelmesh::app
