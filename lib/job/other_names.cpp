#include "job/other_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/nearest.hpp"
#include "base/text.hpp"
#include "job/options.hpp"

namespace reelmesh {
namespace {

constexpr std::string_view by_plan =
    "parallel.weights = host keeps weights in the memory of the host";
constexpr std::string_view no_need = "it is not needed: videos are decoded in parts by all ranks";
constexpr std::string_view not_quantized =
    "it is computed in numerics.dtype; parallel.weights = sharded or host saves memory";
constexpr std::string_view whole_steps = "train.batch counts the clips of all ranks in a step";
constexpr std::string_view not_split =
    "layers are not split over ranks; parallel.weights = sharded divides the weights";

// Keys that are the same here, such as "height" and "seed", need no row: nearest() finds them.
constexpr auto table = std::to_array<OtherName>({
    // The model.
    {"model", "model.path", ""},
    {"model-id", "model.path", ""},
    {"model-name", "model.path", ""},
    {"model-name-or-path", "model.path", ""},
    {"model-path", "model.path", ""},
    {"pretrained-model-name-or-path", "model.path", ""},
    {"pretrained-model-path", "model.path", ""},
    {"ckpt", "model.path", ""},
    {"ckpt-dir", "model.path", ""},
    {"ckpt-path", "model.path", ""},
    {"checkpoint", "model.path", ""},
    {"checkpoint-path", "model.path", ""},
    {"lora-path", "model.lora", ""},
    {"lora-weights", "model.lora", ""},
    {"lora-weights-path", "model.lora", ""},
    {"lora-scale", "model.lora", "", "lora.alpha"},
    {"transformer-path", "model.transformer", ""},
    {"vae-path", "model.vae", ""},
    {"text-encoder-path", "model.text-encoder", ""},
    {"tokenizer-path", "model.tokenizer", ""},
    // Prompts and what clips begin from.
    {"prompt", "prompt.text", "", "train.sample-prompts"},
    {"prompts", "prompt.text", "", "train.sample-prompts"},
    {"prompt-file", "prompt.file", "", "train.sample-prompts"},
    {"prompt-path", "prompt.file", "", "train.sample-prompts"},
    {"negative-prompt", "prompt.negative", ""},
    {"neg-prompt", "prompt.negative", ""},
    {"image-path", "prompt.image", ""},
    {"img-file-path", "prompt.image", ""},
    {"image-or-video-path", "prompt.image", ""},
    {"video-path", "prompt.video", ""},
    {"num-videos-per-prompt", "prompt.repeat", ""},
    {"num-sample", "prompt.repeat", ""},
    // Sampling.
    {"num-inference-steps", "sample.steps", ""},
    {"num-sampling-steps", "sample.steps", ""},
    {"inference-steps", "sample.steps", ""},
    {"sampling-steps", "sample.steps", ""},
    {"num-steps", "sample.steps", "", "train.steps"},
    {"guidance-scale", "sample.guidance", "", "train.sample-guidance"},
    {"sample-guide-scale", "sample.guidance", "", "train.sample-guidance"},
    {"cfg", "sample.guidance", "", "train.sample-guidance"},
    {"cfg-scale", "sample.guidance", "", "train.sample-guidance"},
    {"use-dynamic-cfg", "sample.dynamic-guidance", ""},
    {"num-frames", "sample.frames", "", "data.frames"},
    {"frame-num", "sample.frames", "", "data.frames"},
    {"max-num-frames", "sample.frames", "", "data.frames"},
    {"video-length", "sample.frames", "", "data.frames"},
    {"frame-rate", "sample.fps", "", "data.fps"},
    {"base-seed", "sample.seed", "", "train.seed"},
    {"sample-shift", "sample.flow-shift", "", "train.flow-shift"},
    {"shift", "sample.flow-shift", "", "train.flow-shift"},
    {"infer-steps", "sample.steps", ""},
    {"max-sequence-length", "", "the checkpoint's length of prompts is used"},
    {"manual-seed", "sample.seed", "", "train.seed"},
    {"sample-solver", "sample.scheduler", ""},
    {"sampler", "sample.scheduler", ""},
    {"scheduler", "sample.scheduler", "", "train.schedule"},
    {"batch-size", "sample.batch", "", "train.batch"},
    {"use-teacache", "sample.cache", ""},
    {"size", "", "sample.height and sample.width give it"},
    {"image-size", "", "sample.height and sample.width give it"},
    {"resolution", "", "sample.height and sample.width give it"},
    {"aspect-ratio", "", "sample.height and sample.width give it"},
    // Numerics and devices.
    {"dtype", "numerics.dtype", ""},
    {"torch-dtype", "numerics.dtype", ""},
    {"weight-dtype", "numerics.dtype", ""},
    {"precision", "numerics.dtype", ""},
    {"mixed-precision", "numerics.dtype", ""},
    {"fp32", "", "numerics.dtype = float32 gives it"},
    {"fp16", "", "numerics.dtype = float16 gives it, on GPUs"},
    {"half", "", "numerics.dtype = float16 gives it, on GPUs"},
    {"bf16", "", "numerics.dtype = bfloat16 gives it"},
    {"bfloat16", "", "numerics.dtype = bfloat16 gives it"},
    {"fp8", "", not_quantized},
    {"int8", "", not_quantized},
    {"quantization", "", not_quantized},
    {"quantize", "", not_quantized},
    {"use-fp8", "", not_quantized},
    {"allow-tf32", "numerics.tf32", ""},
    {"device", "device.backend", ""},
    {"enable-model-cpu-offload", "", by_plan},
    {"enable-sequential-cpu-offload", "", by_plan},
    {"offload-model", "", by_plan},
    {"cpu-offload", "", by_plan},
    {"t5-cpu", "", "parallel.text-weights = host keeps its weights in the memory of the host"},
    {"compile", "", "it is not needed: the kernels are compiled"},
    {"torch-compile", "", "it is not needed: the kernels are compiled"},
    {"enable-tiling", "", no_need},
    {"enable-slicing", "", no_need},
    {"enable-vae-tiling", "", no_need},
    {"enable-vae-slicing", "", no_need},
    // Ranks.
    {"ulysses-degree", "parallel.ulysses", ""},
    {"ulysses-size", "parallel.ulysses", ""},
    {"sp-size", "parallel.ulysses", ""},
    {"sp-degree", "parallel.ulysses", ""},
    {"sequence-parallel-size", "parallel.ulysses", ""},
    {"ring-degree", "parallel.ring", ""},
    {"ring-size", "parallel.ring", ""},
    {"cp-degree", "parallel.ring", ""},
    {"use-cfg-parallel", "parallel.cfg", ""},
    {"use-usp", "parallel.ulysses", ""},
    {"dit-fsdp", "parallel.weights", ""},
    {"t5-fsdp", "", "layers of the text encoder are divided over ranks (parallel.device-map)"},
    {"use-fsdp", "parallel.weights", ""},
    {"cfg-parallel", "parallel.cfg", ""},
    {"data-parallel-degree", "parallel.replicas", ""},
    {"dp-degree", "parallel.replicas", ""},
    {"dp-size", "parallel.replicas", ""},
    {"vae-parallel-size", "parallel.decode", ""},
    {"use-parallel-vae", "parallel.decode", ""},
    {"pipefusion-parallel-degree", "", not_split},
    {"tensor-parallel-degree", "", not_split},
    {"tp-degree", "", not_split},
    {"pp-degree", "", not_split},
    {"nproc-per-node", "", "mpirun -n N, or srun, starts the ranks"},
    {"num-processes", "", "mpirun -n N, or srun, starts the ranks"},
    // Output and restarts.
    {"out", "output.path", ""},
    {"output", "output.path", ""},
    {"output-dir", "output.path", ""},
    {"output-path", "output.path", ""},
    {"save-dir", "output.path", ""},
    {"save-file", "output.path", ""},
    {"save-path", "output.path", ""},
    {"output-video-path", "output.path", ""},
    {"outdir", "output.path", ""},
    {"resume", "output.if-exists", ""},
    {"resume-from-checkpoint", "output.if-exists", ""},
    {"overwrite", "output.if-exists", ""},
    // Training.
    {"lr", "train.learning-rate", ""},
    {"learning-rate", "train.learning-rate", ""},
    {"lr-scheduler", "train.schedule", ""},
    {"lr-warmup-steps", "train.warmup", ""},
    {"warmup-steps", "train.warmup", ""},
    {"lr-num-cycles", "train.cycles", ""},
    {"lr-power", "train.power", ""},
    {"snr-gamma", "train.min-snr", ""},
    {"min-snr-gamma", "train.min-snr", ""},
    {"weighting-scheme", "train.timesteps", ""},
    {"max-train-steps", "train.steps", ""},
    {"train-steps", "train.steps", ""},
    {"train-batch-size", "train.batch", ""},
    {"training-type", "train.method", ""},
    {"adam-beta1", "train.beta1", ""},
    {"adam-beta2", "train.beta2", ""},
    {"adam-epsilon", "train.epsilon", ""},
    {"adam-weight-decay", "train.weight-decay", ""},
    {"max-grad-norm", "train.clip", ""},
    {"grad-clip", "train.clip", ""},
    {"ema-decay", "train.ema", ""},
    {"caption-dropout-p", "train.caption-dropout", ""},
    {"noised-image-dropout", "train.image-dropout", ""},
    {"checkpointing-steps", "train.save-every", ""},
    {"ckpt-every", "train.save-every", ""},
    {"validation-steps", "train.sample-every", ""},
    {"validation-prompt", "train.sample-prompts", ""},
    {"validation-prompts", "train.sample-prompts", ""},
    {"lora-rank", "lora.rank", ""},
    {"lora-alpha", "lora.alpha", ""},
    {"network-dim", "lora.rank", ""},
    {"network-alpha", "lora.alpha", ""},
    {"target-modules", "lora.targets", ""},
    {"dataset", "data.path", ""},
    {"data-root", "data.path", ""},
    {"data-path", "data.path", ""},
    {"dataset-path", "data.path", ""},
    {"instance-data-root", "data.path", ""},
    {"train-data-dir", "data.path", ""},
    {"video-resolution-buckets", "data.buckets", ""},
    {"lora-dropout", "lora.dropout", ""},
    {"network-dropout", "lora.dropout", ""},
    {"gradient-accumulation-steps", "", whole_steps},
    {"gradient-checkpointing", "train.recompute", ""},
    {"use-8bit-adam", "", "train.optimizer = lion keeps half of what adamw keeps"},
    {"report-to", "", "metrics.h5 has the losses; tools/tensorboard_training reads it"},
    {"num-train-epochs", "", "there is none: train.steps gives the length"},
    {"epochs", "", "there is none: train.steps gives the length"},
});

// "Num_Frames" → "num-frames".
std::string normalized(std::string_view name) {
  std::string text = lower_case(name.substr(0, 200));
  std::ranges::replace(text, '_', '-');
  return text;
}

// With its section first, which may be another program's.
const OtherName* find_other(std::string_view given) {
  const std::string name = normalized(given);
  const std::string key = name.substr(name.find_last_of('.') + 1);
  for (const std::string& text : {name, key}) {
    const auto* found = std::ranges::find(table, text, &OtherName::name);
    if (found != table.end()) return found;
  }
  return nullptr;
}

bool contains(std::span<const std::string> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

const char* commands_of(JobKind kind) {
  switch (kind) {
    case JobKind::clips:
      return "reelmesh run";
    case JobKind::training:
      return "reelmesh train";
    case JobKind::any:
      break;
  }
  return "reelmesh run and train";
}

// That other jobs have this option; empty if none has it. subject: "it" or its name.
std::string hint_of_kind(std::string_view option, std::string_view subject) {
  const auto found = std::ranges::find(options(), option, &Option::name);
  if (found == options().end()) return "";
  return fmt::format("; {} is an option of {}", subject, commands_of(found->kind));
}

}  // namespace

std::span<const OtherName> other_names() { return table; }

std::string hint(std::string_view given, std::span<const std::string> names,
                 std::string_view before) {
  if (const std::string other = hint_of_kind(given, "it"); !other.empty()) return other;
  const std::string near = nearest(given, names);
  const OtherName* other = find_other(given);
  if (other == nullptr) return did_you_mean(before, near);
  if (other->option.empty()) return fmt::format("; {}", other->remark);
  for (const std::string_view option : {other->option, other->of_training}) {
    if (contains(names, option)) return did_you_mean(before, option);
  }
  return near.empty() ? hint_of_kind(other->option, other->option) : did_you_mean(before, near);
}

std::string hint_of_section(std::string_view given, std::span<const std::string> sections) {
  const std::string begin = std::string(given) + ".";
  for (const Option& option : options()) {
    if (std::string_view(option.name).starts_with(begin)) {
      return fmt::format("; it is a section of {}", commands_of(option.kind));
    }
  }
  return did_you_mean("[", nearest(given, sections), "]");
}

std::string hint_of_field(std::string_view given, std::span<const std::string> fields,
                          std::span<const std::string> options) {
  std::string meant = nearest(given, fields);
  if (const OtherName* other = find_other(given); other != nullptr && !other->option.empty()) {
    const auto found = std::ranges::find(options, other->option);
    if (found != options.end()) meant = fields[static_cast<std::size_t>(found - options.begin())];
  }
  return did_you_mean("\"", meant, "\"");
}

}  // namespace reelmesh
