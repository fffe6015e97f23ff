#include "job/options.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/error.hpp"
#include "base/trace.hpp"
#include "base/units.hpp"
#include "job/requests.hpp"
#include "job/train_options.hpp"
#include "job/values.hpp"
#include "sampler/cogvideox.hpp"
#include "sampler/flow_samplers.hpp"
#include "sampler/sampler_rows.hpp"
#include "weights/lora.hpp"

namespace reelmesh {
namespace {

using Text = std::string_view;
using Where = const std::string&;

constexpr std::array<Text, 3> modes{"auto", "split", "phased"};
constexpr std::array<Text, 2> orders{"node", "rank"};
constexpr std::array<Text, 4> weights{"auto", "replicated", "sharded", "host"};
constexpr std::array<Text, 4> part_weights{"same", "auto", "replicated", "host"};
constexpr std::array<std::optional<WeightsChoice>, 4> choices_of_part{
    std::nullopt, WeightsChoice::automatic, WeightsChoice::replicated, WeightsChoice::host};
constexpr std::array<Text, 3> backends{"auto", "cpu", "cuda"};
constexpr std::array<Text, 3> transports{"auto", "nccl", "mpi"};
constexpr std::array<Text, 2> attentions{"auto", "own"};
constexpr std::array<Text, 3> products{"auto", "bfloat16", "float32"};  // as enum Products
constexpr std::array<Text, 3> if_exists{"fail", "resume", "replace"};

std::string parse_prompt(Text text, Where option) {
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

std::string parse_device_map(Text text, Where option) {
  require(
      text == "auto" || text.ends_with(".json") || is_device_map(text), Status::usage,
      "{}: found '{}', expected auto, ranges (layers:rank) such as 0-11:0,12-23:1, or a .json file",
      option, text);
  return std::string(text);
}

std::optional<int> parse_cfg(Text text, Where option) {
  const std::optional<int> ranks = parse_ranks(text, option);
  require(ranks.value_or(1) <= 2, Status::usage, "{}: found '{}', expected auto, 1 or 2", option,
          text);
  return ranks;
}

DType parse_dtype_of(const Job& job, Text text, Where option) {
  const DType dtype = parse_dtype(text, option);
  require(dtype != DType::float16 || !job.train, Status::usage,
          "{}: found float16, expected float32 or bfloat16, as training does not scale its losses",
          option);
  require(dtype != DType::float16 || job.backend == Backend::cuda, Status::usage,
          "{}: found float16, expected float32 or bfloat16; float16 needs device.backend = cuda",
          option);
  return dtype;
}

// "20": steps; "10min": a time; "none".
void set_restart(RestartSettings& settings, Text text, Where option) {
  settings.every_steps = 0;
  settings.every_seconds = 0;
  if (text == "none") return;
  if (text.find_first_not_of("0123456789") == Text::npos) {
    settings.every_steps = parse_integer(text, option, 1, 1000);
  } else {
    settings.every_seconds = parse_wait(text, option);
  }
}

std::optional<int> parse_threads(Text text, Where option) {
  if (text == "auto") return std::nullopt;
  return static_cast<int>(parse_integer(text, option, 1, 4096));
}

// One number per rank; empty for equal or measured speeds.
std::vector<double> parse_speeds(Text text, Where option) {
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
std::vector<std::int64_t> parse_limits(Text text, Where option) {
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

void add_lora(Draft& draft, std::vector<LoraFile>& loras, Text text, Where option) {
  if (text == "none") {
    loras.clear();
    return;
  }
  loras.push_back(parse_lora(text, option));
  draft.job.paths.push_back({option, loras.back().path, PathUse::input});
  require(loras.size() <= max_loras, Status::usage, "{}: found {} files, expected at most {}",
          option, loras.size(), max_loras);
}

// Other programs take the file of a video here.
void require_folder_name(const std::filesystem::path& path, Where option) {
  constexpr std::array<Text, 11> of_files{".mp4", ".mov", ".m4v", ".mkv", ".webm",       ".avi",
                                          ".gif", ".h5",  ".png", ".jpg", ".safetensors"};
  const std::string extension = path.extension().string();
  require(
      std::ranges::find(of_files, extension) == of_files.end(), Status::usage,
      "{}: found '{}', expected a folder; when the job is done, reelmesh-export FOLDER --clip 0 "
      "--to DIR writes a video",
      option, path.string());
}

std::string yes_no(bool yes) { return yes ? "yes" : "no"; }

// The option of a setting that clips may have for themselves.
template <std::size_t i>
Option option_of_setting() {
  static constexpr const auto& setting = std::get<i>(clip_settings);
  static const std::string help =
      fmt::format(fmt::runtime(setting.help), fmt::arg("limits", setting_limits(setting)));
  return {setting.option,
          setting.unit,
          help.c_str(),
          setting.fallback,
          Effect::clips,
          [](Draft& d, Text text, Where option) {
            d.job.sample.*setting.value = parse_setting(setting, text, option);
          }};
}

template <std::size_t... i>
void add_clip_settings(std::vector<Option>& all, std::index_sequence<i...>) {
  (all.push_back(option_of_setting<i>()), ...);
}

template <std::size_t i>
Option option_of_folder() {
  static constexpr const ModelFolder& folder = model_folders[i];
  static const std::string help =
      fmt::format("folder of {} [default: {}/ in model.path{}]", folder.what, folder.name,
                  folder.optional ? ", if it has one" : "");
  return {folder.option,
          "DIR",
          help.c_str(),
          nullptr,
          Effect::model,
          [](Draft& d, Text text, Where option) {
            d.job.model.*folder.path = d.path(PathUse::input, text, option);
          }};
}

template <std::size_t... i>
void add_folders(std::vector<Option>& all, std::index_sequence<i...>) {
  (all.push_back(option_of_folder<i>()), ...);
}

std::vector<Option> model_options() {
  std::vector<Option> all{{"model.path", "DIR",
                           "checkpoint in the diffusers layout, with model_index.json (required)",
                           nullptr, Effect::model, [](Draft& d, Text text, Where option) {
                             d.job.model.root = d.path(PathUse::input, text, option);
                           }}};
  add_folders(all, std::make_index_sequence<model_folders.size()>());
  const std::vector<Option> others{
      {"model.variant", "NAME",
       "variant of the weight files, as in diffusers: fp16 for model.fp16.safetensors; a part "
       "without such files has its usual ones",
       nullptr, Effect::model,
       [](Draft& d, Text text, Where option) {
         require(!text.empty() && text.find('/') == std::string_view::npos, Status::usage,
                 "{}: found '{}', expected a word such as fp16", option, text);
         d.job.model.variant = text;
       }},
      {"model.lora", "FILE[:SCALE]",
       "LoRA of the transformer in safetensors, with the names of diffusers, PEFT, kohya, "
       "VideoX-Fun or ComfyUI, or a folder with it; repeat the option for more, which add up. "
       "SCALE multiplies its changes [default: 1]. "
       "In a training they change the model, and are no part of what it learns. none: no LoRA, for "
       "a job file that has some",
       nullptr, Effect::model,
       [](Draft& d, Text text, Where option) { add_lora(d, d.job.model.loras, text, option); },
       true},
      {"model.lora-2", "FILE[:SCALE]",
       "likewise of the second transformer, of models that have two (Wan 2.2 A14B), whose LoRAs "
       "come as a file for each: model.lora is for the one of high noise",
       nullptr, Effect::model,
       [](Draft& d, Text text, Where option) { add_lora(d, d.job.model.loras_2, text, option); },
       true},
      {"model.lora-strict", "yes|no",
       "refuse a LoRA that also changes text encoders; otherwise a warning says so, and only what "
       "changes the transformer is used",
       "no", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.model.strict_loras = parse_switch(text, option);
       }},
      {"model.unread", "refuse|allow",
       "a checkpoint with tensors inside its blocks that no part of the model reads, such as a "
       "further projection of each block: its clips would not be those of the checkpoint. allow: "
       "a warning names them",
       "refuse", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         require(text == "refuse" || text == "allow", Status::usage,
                 "{}: found '{}', expected refuse or allow", option, text);
         d.job.model.allow_unread = text == "allow";
       }},
      {"model.copy-to", "DIR|none",
       "copy the weights to this folder of each host at the start, and read them there: /dev/shm, "
       "or "
       "a local disk. Each byte is read once for all hosts, and sent between them. The copies are "
       "gone with the job; none: weights are read where they are",
       "none", Effect::no_bits, [](Draft& d, Text text, Where option) {
         if (text != "none") d.job.copies = d.path(PathUse::cache, text, option);
       }}};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::vector<Option> prompt_options() {
  static const std::string help_of_file =
      "more prompts. FILE.txt: one a line, # starts a comment line. FILE.jsonl: one object a line "
      "with prompt (or token_ids), and optionally " +
      optional_fields() +
      " (paths are relative to the current folder). FILE.json: a list of such objects, of prompts, "
      "or of VBench's entries. Prompts on the command line replace all prompts of the job file";
  return {
      {"prompt.text", "TEXT", "a prompt; repeat the option for more clips", nullptr, Effect::clips,
       [](Draft& d, Text text, Where option) { d.texts.push_back(parse_prompt(text, option)); },
       true},
      {"prompt.file", "FILE", help_of_file.c_str(), nullptr, Effect::clips,
       [](Draft& d, Text text, Where option) {
         d.prompt_file = d.path(PathUse::input, text, option);
       }},
      {"prompt.repeat", "N",
       "clips of each prompt, one after the other. Clip i of all has the seed sample.seed + i; of "
       "a prompt with a seed of its own they have that one and those that follow",
       "1", Effect::clips,
       [](Draft& d, Text text, Where option) { d.repeat = parse_repeat(text, option); }},
      {"prompt.image", "FILE",
       "the image that clips begin from, for image-to-video checkpoints (PNG, JPEG, WebP, GIF, "
       "BMP, TIFF, "
       "AVIF), resized to "
       "the clip's size; or a frame of what prompt.video takes: street.mp4@12, OUT/job.h5:3@last. "
       "With VBench's list of prompts and images: the folder of the images",
       nullptr, Effect::clips,
       [](Draft& d, Text text, Where option) {
         d.job.image = d.path(PathUse::input, text, option);
       }},
      {"prompt.last-image", "FILE",
       "with prompt.image: the image that clips end with, for checkpoints that take a first and a "
       "last one",
       nullptr, Effect::clips,
       [](Draft& d, Text text, Where option) {
         d.job.last_image = d.path(PathUse::input, text, option);
       }},
      {"prompt.video", "FILE",
       "the video that clips are made from, for text-to-video checkpoints: a format of ffmpeg's "
       "libraries, or a clip of an earlier job as OUT/clips/000003.h5 or OUT/job.h5:3. It gives "
       "sample.frames and sample.fps unless they are given; its first frames are used, resized to "
       "the clip's size",
       nullptr, Effect::clips,
       [](Draft& d, Text text, Where option) {
         d.job.video = d.path(PathUse::input, text, option);
       }},
      {"prompt.negative", "TEXT", "negative prompt [default: the empty prompt]", nullptr,
       Effect::clips,
       [](Draft& d, Text text, Where option) { d.negative = parse_prompt(text, option); }},
      {"prompt.clean", "yes|no",
       "Open-Sora: normalise prompts like its training captions; no if they already are", "yes",
       Effect::clips, [](Draft& d, Text text, Where option) {
         d.job.clean_prompts = parse_switch(text, option);
       }}};
}

// The samplers of all families.
std::vector<Text> samplers() {
  std::vector<Text> names;
  for (const CogVideoXSampler& sampler : cogvideox_samplers()) names.push_back(sampler.option);
  for (const FlowSampler& sampler : flow_samplers()) names.push_back(sampler.option);
  return names;
}

std::vector<Option> sample_options() {
  static const std::string sampler_help =
      fmt::format("CogVideoX: {}; Wan: {} [default: the checkpoint's]",
                  sampler_names(cogvideox_samplers()), sampler_names(flow_samplers()));
  static const std::string names_of_samplers = fmt::format("{}", fmt::join(samplers(), "|"));
  std::vector<Option> all;
  add_clip_settings(all, std::make_index_sequence<std::tuple_size_v<decltype(clip_settings)>>());
  const std::vector<Option> of_all_clips{
      {"sample.dynamic-guidance", "yes|no",
       "CogVideoX: vary the guidance scale over the steps (use_dynamic_cfg of diffusers)", "no",
       Effect::fingerprint,
       [](Draft& d, Text text, Where option) {
         d.job.dynamic_guidance = parse_switch(text, option);
       },
       false, [](const Job& job, const Computation&) { return yes_no(job.dynamic_guidance); }},
      {"sample.scheduler", names_of_samplers.c_str(), sampler_help.c_str(), nullptr,
       Effect::attribute,
       [](Draft& d, Text text, Where option) {
         const std::vector<Text> names = samplers();
         d.job.scheduler = names[parse_choice(text, option, names)];
       }},
      {"sample.stop-after", "N|none",
       "steps after which clips are left, 1 to 1000: each is saved, and its file has a preview, "
       "the video that the model predicts at that step. run --from OUT/job.h5 --clips LIST "
       "completes some of them, output.if-exists = resume without this option all",
       "none", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.stop_after.reset();
         if (text != "none") {
           d.job.stop_after = static_cast<int>(parse_integer(text, option, 1, 1000));
         }
       }},
      {"sample.batch", "N",
       "clips of the same format that a denoising group computes together, 1 to 1000; more memory, "
       "same bits",
       "1", Effect::no_bits, [](Draft& d, Text text, Where option) {
         d.job.batch = static_cast<int>(parse_integer(text, option, 1, 1000));
       }}};
  all.insert(all.end(), of_all_clips.begin(), of_all_clips.end());
  return all;
}

std::vector<Option> output_options() {
  return {
      {"output.path", "DIR", "folder for the results (required)", nullptr, Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.output = d.path(PathUse::output, text, option);
         require_folder_name(d.job.output, option);
       }},
      {"output.if-exists", "fail|resume|replace",
       "if output.path already has a job: fail, resume (make only the clips that are missing, or "
       "train on) or replace",
       "fail", Effect::no_bits, [](Draft& d, Text text, Where option) {
         d.job.if_exists = static_cast<IfExists>(parse_choice(text, option, if_exists));
       }}};
}

std::vector<Option> clip_output_options() {
  return {
      {"output.video", "yes|no", "write the video", "yes", Effect::no_bits,
       [](Draft& d, Text text, Where option) { d.job.keep_video = parse_switch(text, option); }},
      {"output.latents", "yes|no", "write the final latents", "yes", Effect::no_bits,
       [](Draft& d, Text text, Where option) { d.job.keep_latents = parse_switch(text, option); }},
      {"output.embeddings", "yes|no", "write the prompt embeddings", "no", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.keep_embeddings = parse_switch(text, option);
       }},
      {"output.strict", "yes|no",
       "end the job at the first clip that fails; otherwise other clips go on", "no",
       Effect::no_bits,
       [](Draft& d, Text text, Where option) { d.job.strict = parse_switch(text, option); }}};
}

std::vector<Option> restart_options() {
  static const std::string every_help = fmt::format(
      "save clips in progress, or the state of a training, every N steps, or after a time such as "
      "10min; a job that ends early goes on from there with output.if-exists = resume [default: "
      "{:g}min, of a training {:g}min]",
      RestartSettings().every_seconds / 60, training_saved_every_seconds / 60);
  return {
      {"restart.every", "N|TIME|none", every_help.c_str(), nullptr, Effect::no_bits,
       [](Draft& d, Text text, Where option) { set_restart(d.job.restart, text, option); }},
      {"restart.on-signal", "yes|no",
       "SIGTERM, SIGINT (Ctrl-C), SIGUSR1 and SIGXCPU stop the job after the current step, saved, "
       "with status 75; a second one ends it at once",
       "yes", Effect::no_bits, [](Draft& d, Text text, Where option) {
         d.job.restart.on_signal = parse_switch(text, option);
       }}};
}

std::vector<Option> parallel_options() {
  return {
      {"parallel.mode", "auto|split|phased",
       "split: text, denoising and decoding have separate ranks; phased: all ranks do each stage "
       "in turn; auto",
       "auto", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.parallel.mode = static_cast<Mode>(parse_choice(text, option, modes));
       }},
      {"parallel.text", "N|auto", "ranks for the text encoder", "auto", Effect::no_bits,
       [](Draft& d, Text text, Where option) { d.job.parallel.text = parse_ranks(text, option); }},
      {"parallel.replicas", "N|auto",
       "groups of ranks that make different clips at the same time; auto: as many as make all "
       "clips soonest. A group has cfg x ring x ulysses ranks",
       "auto", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.parallel.replicas = parse_ranks(text, option);
       }},
      {"parallel.cfg", "1|2|auto",
       "2: conditional and unconditional branch of guidance on different ranks", "auto",
       Effect::no_bits,
       [](Draft& d, Text text, Where option) { d.job.parallel.cfg = parse_cfg(text, option); }},
      {"parallel.ulysses", "N|auto",
       "ranks that exchange tokens for heads around attention (DeepSpeed-Ulysses)", "auto",
       Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.parallel.ulysses = parse_ranks(text, option);
       }},
      {"parallel.ring", "N|auto",
       "ranks that each compute attention for a part of the queries, over all keys", "auto",
       Effect::no_bits,
       [](Draft& d, Text text, Where option) { d.job.parallel.ring = parse_ranks(text, option); }},
      {"parallel.decode", "N|auto", "ranks for the decoder", "auto", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.parallel.decode = parse_ranks(text, option);
       }},
      {"parallel.shard", "auto|height|frames|grid",
       "axes of the latents that are cut: height, frames, grid (both) or auto", "auto",
       Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.parallel.shard = static_cast<Shard>(parse_choice(text, option, shard_names));
       }},
      {"parallel.order", "node|rank",
       "node: ranks that exchange most are placed on one node; rank: the launcher's order", "node",
       Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.parallel.order = static_cast<Order>(parse_choice(text, option, orders));
       }},
      {"parallel.weights", "auto|replicated|sharded|host",
       "weights of the transformer's linear layers: replicated (whole on each rank), sharded "
       "(divided among the ranks of a denoising group, gathered before each use), host (fetched "
       "from host memory before each use), or auto: replicated if they fit device.memory-limit. "
       "Changes no bit of the results",
       "auto", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.parallel.weights = static_cast<WeightsChoice>(parse_choice(text, option, weights));
       }},
      {"parallel.text-weights", "same|auto|replicated|host",
       "weights of the text encoder's layers on their ranks: replicated (all stay), host, auto "
       "(host for those that do not fit) or same (as parallel.weights, but auto if that is "
       "sharded)",
       "same", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.parallel.text_weights = choices_of_part.at(parse_choice(text, option, part_weights));
       }},
      {"parallel.decode-weights", "same|auto|replicated|host",
       "weights of the decoder: replicated (they stay), host (loaded for each round of clips, "
       "unloaded after it), auto: host if device.memory-limit needs it, or same (host if "
       "parallel.weights is host, otherwise auto)",
       "same", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.parallel.decode_weights =
             choices_of_part.at(parse_choice(text, option, part_weights));
       }},
      {"parallel.device-map", "MAP|FILE.json|auto",
       "ranks of the text encoder's layers: auto, ranges (layers:rank) such as 0-11:0,12-23:1, or "
       "a .json device map of accelerate; layers:rank@host, or \"cpu\" and \"disk\" in a file: "
       "weights on the host",
       "auto", Effect::no_bits, [](Draft& d, Text text, Where option) {
         std::string& map = d.job.parallel.device_map = parse_device_map(text, option);
         if (text.ends_with(".json")) map = d.path(PathUse::input, text, option).string();
       }}};
}

std::vector<Option> tune_options() {
  return {{"parallel.tune", "yes|no",
           "yes: time the three layouts that are predicted to be fastest on the first steps of the "
           "job's own clips, and go on with the fastest, with device.machine",
           "no", Effect::no_bits,
           [](Draft& d, Text text, Where option) { d.job.tune = parse_switch(text, option); }}};
}

std::vector<Option> device_options() {
  return {
      {"device.backend", "auto|cpu|cuda",
       "cpu, cuda (one GPU a rank), or auto: cuda if this build and all hosts have it", "auto",
       Effect::device,
       [](Draft& d, Text text, Where option) {
         d.job.backend = static_cast<Backend>(parse_choice(text, option, backends));
       }},
      {"device.transport", "auto|nccl|mpi",
       "messages between GPUs: nccl; mpi (through host memory, also for ranks that share a GPU); "
       "auto: nccl if it is installed and no ranks share a GPU",
       "auto", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.transport = static_cast<Transport>(parse_choice(text, option, transports));
       }},
      {"device.timeout", "TIME",
       "longest time without a sign of life from a rank, without progress of all ranks, or for a "
       "GPU to finish its work, before the job ends with status 76, such as 90s or 10min",
       "10min", Effect::no_bits,
       [](Draft& d, Text text, Where option) { d.job.device_timeout = parse_wait(text, option); }},
      {"device.threads", "N|auto", "threads of a rank; auto: one for each core it is bound to",
       "auto", Effect::no_bits,
       [](Draft& d, Text text, Where option) { d.job.threads = parse_threads(text, option); }},
      {"device.machine", "FILE|NAME|none",
       "machine file, as plan calibrate writes one, or the name of one in inputs/machines, such as "
       "h100: times are predicted with it. none: no times",
       "none", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.machine_file = text == "none" ? "" : d.path(PathUse::input, text, option);
       }},
      {"device.memory-limit", "SIZES|none",
       "memory a rank may use: none, 16GiB, or a list with one size for each rank such as "
       "16GiB,16GiB,8GiB. A job that cannot keep to it is refused (status 69)",
       "none", Effect::no_bits,
       [](Draft& d, Text text, Where option) { d.job.memory_limits = parse_limits(text, option); }},
      {"device.speeds", "LIST|equal|auto",
       "relative speeds of the ranks; work is divided in proportion. equal, a list with one number "
       "for each rank such as 1,1,2.5,2.5, or auto (measured at the start)",
       "equal", Effect::no_bits, [](Draft& d, Text text, Where option) {
         d.job.measure_speeds = text == "auto";
         d.job.speeds = parse_speeds(text, option);
       }}};
}

std::vector<Option> numerics_options() {
  return {
      {"numerics.dtype", "float32|bfloat16|float16", "float16 only to make clips on GPUs",
       "float32", Effect::attribute,
       [](Draft& d, Text text, Where option) {  // must come after device.backend in this table
         d.job.dtype = parse_dtype_of(d.job, text, option);
       }},
      {"numerics.tf32", "yes|no", "GPUs: allow TF32 in float32 matrix products", "no",
       Effect::fingerprint,
       [](Draft& d, Text text, Where option) { d.job.numerics.tf32 = parse_switch(text, option); },
       false,
       [](const Job& job, const Computation& by) {
         return yes_no(by.on_gpu && job.numerics.tf32);
       }},
      {"numerics.reproducible", "yes|no",
       "same bits for every layout: unlike processors or GPUs are refused. no: a warning, and GPUs "
       "may choose the algorithm of a matrix product by its local number of rows",
       "yes", Effect::fingerprint,
       [](Draft& d, Text text, Where option) {
         d.job.numerics.reproducible = parse_switch(text, option);
       },
       false,
       [](const Job& job, const Computation& by) {
         return yes_no(!by.on_gpu || job.numerics.reproducible);
       }},
      {"numerics.attention", "auto|own",
       "GPUs: own uses only the attention kernels of this program; auto uses cuDNN's for 16-bit "
       "types and at least 512 keys, if it has one",
       "auto", Effect::fingerprint,
       [](Draft& d, Text text, Where option) {
         d.job.numerics.own_attention = parse_choice(text, option, attentions) == 1;
       },
       false,
       [](const Job& job, const Computation& by) {
         return std::string(attentions[by.on_gpu && job.numerics.own_attention ? 1 : 0]);
       }},
      {"numerics.products", "auto|bfloat16|float32",
       "CPUs, with dtype bfloat16: input type of matrix products, attention and convolutions. "
       "bfloat16 needs AVX-512; float32 computes them exactly; auto takes bfloat16 on processors "
       "with AMX and on AMD's with AVX512_BF16. Changes bits",
       "auto", Effect::fingerprint,
       [](Draft& d, Text text, Where option) {
         d.job.products = static_cast<Products>(parse_choice(text, option, products));
       },
       false, [](const Job&, const Computation& by) { return by.products; }},
      {"trace.level", "off|stages|layers|ops", "detail of trace.h5", "stages", Effect::no_bits,
       [](Draft& d, Text text, Where option) {
         d.job.trace_level = static_cast<int>(parse_choice(text, option, trace::level_names));
       }}};
}

std::vector<Option> all_options() {
  std::vector<Option> all;
  const auto add = [&](JobKind kind, std::vector<Option> section) {
    for (Option& option : section) option.kind = kind;
    all.insert(all.end(), section.begin(), section.end());
  };
  add(JobKind::any, model_options());
  add(JobKind::clips, prompt_options());
  add(JobKind::clips, sample_options());
  add(JobKind::training, training_options());
  add(JobKind::any, output_options());
  add(JobKind::clips, clip_output_options());
  add(JobKind::any, restart_options());
  add(JobKind::any, parallel_options());
  add(JobKind::clips, tune_options());
  add(JobKind::any, device_options());
  add(JobKind::any, numerics_options());
  return all;
}

}  // namespace

std::filesystem::path Draft::path(PathUse use, Text text, Where option) {
  job.paths.push_back({option, parse_path(text, option), use});
  return job.paths.back().path;
}

std::span<const Option> options() {
  static const std::vector<Option> table = all_options();
  return table;
}

namespace {

// Options of both kinds of jobs are how they compute.
std::string bits_text(const Job& job, const Computation& by,
                      const std::function<bool(const Option&)>& counts) {
  std::string text;
  for (const Option& option : options()) {
    if (option.effect != Effect::fingerprint || !counts(option)) continue;
    const std::string value = option.in_effect(job, by);
    const Text name = option.name;
    const bool whole = option.kind == JobKind::training;  // train.reproducible
    if (!value.empty()) {
      text += fmt::format(", {} {}", whole ? name : name.substr(name.find('.') + 1), value);
    }
  }
  return text;
}

std::string model_and_device(const std::string& model_hash, const Computation& by) {
  return fmt::format("model {}, backend {}", model_hash, by.on_gpu ? "cuda" : "cpu");
}

}  // namespace

std::string fingerprint(const std::string& model_hash, const Job& job, const Computation& by) {
  std::string text = model_and_device(model_hash, by);
  if (job.train) text += fmt::format(", dtype {}", name_of(job.dtype));  // of clips: an attribute
  return text + bits_text(job, by, [&](const Option& o) { return o.is_of(kind_of(job)); });
}

std::string encoders_fingerprint(const std::string& model_hash, const Job& job,
                                 const Computation& by) {
  return fmt::format("{}, dtype {}{}", model_and_device(model_hash, by), name_of(job.dtype),
                     bits_text(job, by, [](const Option& o) { return o.kind == JobKind::any; }));
}

}  // namespace reelmesh
