#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "commands.hpp"
#include "counts.hpp"
#include "job/family.hpp"
#include "models/autoencoder/config.hpp"
#include "models/checkpoints/survey.hpp"
#include "models/clip/config.hpp"
#include "models/cogvideox/folder.hpp"
#include "models/common/flow_scheduler.hpp"
#include "models/opensora/config.hpp"
#include "models/wan/config.hpp"
#include "options.hpp"
#include "sampler/iddpm.hpp"
#include "sampler/rectified_flow.hpp"
#include "sampler/sampler_rows.hpp"
#include "weights/json.hpp"
#include "weights/lora.hpp"
#include "weights/lora_changes.hpp"
#include "weights/names.hpp"
#include "weights/tokenizer_file.hpp"

namespace reelmesh::app {
namespace {

namespace fs = std::filesystem;

// Problems that prevent clips from being made, and the resulting exit status.
struct Verdict {
  Status status = Status::ok;
  std::vector<std::string> problems;

  void add(Status kind, const std::string& problem) {
    // A missing folder takes precedence over invalid contents of others.
    if (status == Status::ok || kind == Status::no_input) status = kind;
    problems.push_back(problem);
  }
};

void line(const std::string& text) { std::cout << "  " << one_line(text) << '\n'; }

template <class List, class Show>
void list(const List& items, const std::string& what, Show&& show) {
  constexpr std::size_t max_shown = 20;
  if (items.empty()) return;
  line(fmt::format("{} {}:", items.size(), what));
  for (std::size_t i = 0; i < std::min(items.size(), max_shown); ++i) line("  " + show(items[i]));
  if (items.size() > max_shown) line(fmt::format("  and {} more", items.size() - max_shown));
}

std::string joined(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t n : numbers) text += (text.empty() ? "" : ", ") + std::to_string(n);
  return text;
}

std::string stdit_highlights(const Config& config) {
  const auto c = STDiTConfig::read(config);
  return fmt::format(
      "{} spatial and {} temporal layers, {} heads of {} channels, patches of {} x {} latents "
      "(rows, "
      "columns), {} latent channels, text of at most {} tokens of {} channels",
      c.layers, c.layers, c.heads, c.head_channels(), c.patch.rows, c.patch.columns, c.in_channels,
      c.max_text_tokens, c.text_channels);
}

std::string vae_highlights(const Config& config) {
  const auto c = OpenSoraVaeConfig::read(config);
  const ImageAutoencoderConfig& image = c.image;
  return fmt::format("blocks of {} channels, {} layers a block, {} groups, {} latent channels, {}",
                     joined(image.block_channels), image.layers_per_block, image.groups,
                     image.latent_channels,
                     c.temporal ? fmt::format("{} frames of latents for {} of video",
                                              c.temporal->micro_latents(), c.temporal->micro_frames)
                                : "a frame of latents for each frame of video");
}

std::string wan_highlights(const Config& config) {
  const auto c = WanConfig::read(config);
  return fmt::format(
      "{} layers, {} heads of {} channels, rotary positions, patches of {} x {} latents (rows, "
      "columns), {} latent channels{}, text of {} tokens of {} channels{}",
      c.layers, c.heads, c.head_channels, c.patch.rows, c.patch.columns, c.out_channels,
      c.takes_image() ? fmt::format(" and {} of an image", c.image_channels()) : "",
      WanConfig::text_tokens, c.text_channels,
      c.vision_channels > 0 ? fmt::format(", rows of an image of {} channels", c.vision_channels)
                            : "");
}

std::string wan_vae_highlights(const Config& config) {
  const auto c = WanVaeConfig::read(config);
  std::vector<std::int64_t> channels;
  for (std::size_t i = 0; i < c.multipliers.size(); ++i) channels.push_back(c.channels(i));
  return fmt::format(
      "blocks of {} channels{}, {} layers a block, {} latent channels, {} x {} pixels of a latent, "
      "a frame of latents for the first frame of video and for each {} after it",
      joined(channels), c.shortcuts ? " with shortcuts" : "", c.residuals, c.latent_channels,
      c.pixels_per_latent(), c.pixels_per_latent(), WanVaeConfig::frames_per_latent);
}

std::string cogvideox_highlights(const Config& config) {
  const auto c = CogVideoXConfig::read(config);
  const char* positions = c.learned_positions ? "rotary and learned"
                          : c.rotary          ? "rotary"
                                              : "sin-cos";
  return fmt::format(
      "{} layers, {} heads of {} channels, {} positions, patches of {} x {} x {} latents "
      "(frames, rows, columns), {} latent channels{}, text of {} tokens of {} channels",
      c.layers, c.heads, c.head_channels, positions, c.patch.frames, c.patch.rows, c.patch.columns,
      c.latent_channels(),
      c.takes_image() ? fmt::format(" and {} of an image", c.image_channels()) : "",
      c.max_text_tokens, c.text_channels);
}

std::string cogvideox_vae_highlights(const Config& config) {
  const auto c = CogVideoXVaeConfig::read(config);
  return fmt::format(
      "blocks of {} channels, {} layers a block, {} groups, {} latent channels, scaling factor {}",
      joined(c.block_channels), c.layers_per_block, c.groups, c.latent_channels, c.scaling_factor);
}

std::string t5_highlights(const Config& config) {
  const auto c = T5Config::read(config);
  return fmt::format(
      "{} layers, {} heads of {} channels, {} channels, {} in feed-forward layers, {} ids",
      c.num_layers, c.num_heads, c.d_kv, c.d_model, c.d_ff, c.vocab_size);
}

std::string clip_highlights(const Config& config) {
  const auto c = ClipVisionConfig::read(config);
  return fmt::format(
      "{} layers, of which {} are used, {} heads of {} channels, {} in feed-forward layers, images "
      "of {} x {} pixels in patches of {} x {}",
      c.layers, c.layers - 1, c.heads, c.channels / c.heads, c.hidden_channels, c.image_size,
      c.image_size, c.patch_size, c.patch_size);
}

// By model_class().
struct Highlights {
  std::string_view class_name;
  std::string (*text)(const Config& config);
};
constexpr Highlights all_highlights[] = {{"CogVideoXTransformer3DModel", cogvideox_highlights},
                                         {"STDiT", stdit_highlights},
                                         {"STDiT3", stdit_highlights},
                                         {"WanTransformer3DModel", wan_highlights},
                                         {"AutoencoderKLCogVideoX", cogvideox_vae_highlights},
                                         {"AutoencoderKL", vae_highlights},
                                         {"OpenSoraVAE_V1_2", vae_highlights},
                                         {"VideoAutoencoderPipeline", vae_highlights},
                                         {"AutoencoderKLWan", wan_vae_highlights},
                                         {"T5EncoderModel", t5_highlights},
                                         {"UMT5EncoderModel", t5_highlights},
                                         {"CLIPVisionModel", clip_highlights},
                                         {"CLIPVisionModelWithProjection", clip_highlights}};

std::string highlights(const PartSurvey& part) {
  const auto* const found =
      std::ranges::find(all_highlights, part.class_name, &Highlights::class_name);
  expect(found != std::end(all_highlights), "nothing to say of the class {}", part.class_name);
  return found->text(*part.config);
}

void print_weights(const PartSurvey& part) {
  std::int64_t bytes = 0;
  std::string types;
  for (const auto& [dtype, count] : part.bytes) {
    bytes += count;
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", dtype, with_separators(count));
  }
  line(fmt::format("{} {}, {} tensors, {} parameters", part.files,
                   part.files == 1 ? "file" : "files", with_separators(part.tensors),
                   with_separators(part.parameters)));
  line(fmt::format("{} bytes ({}): {}", with_separators(bytes),
                   format_bytes(static_cast<double>(bytes)), types));
  list(part.missing, "missing", [](const std::string& name) { return name; });
  list(part.wrong_shapes, "with another shape", [](const Difference::WrongShape& wrong) {
    return fmt::format("{} {}, expected {}", wrong.name, to_string(wrong.found),
                       to_string(wrong.expected));
  });
  list(part.wrong_types, fmt::format("of a type other than {}", loadable_types),
       [](const PartSurvey::WrongType& wrong) {
         return fmt::format("{}: {}", printable(wrong.name), wrong.dtype);
       });
  list(part.unexpected, "unexpected (never read)",
       [](const std::string& name) { return printable(name); });
  if (part.part == ModelPart::vae && part.unneeded > 0) {
    std::string encoder = "is complete";
    if (part.unneeded_missing == part.unneeded) {
      encoder = "is absent";
    } else if (!part.has_encoder()) {
      encoder = fmt::format("lacks {} tensors, and {} have another shape", part.unneeded_missing,
                            part.unneeded_wrong);
    }
    line(fmt::format("the encoder {}; clips from text do not need it", encoder));
  }
  if (part.missing.empty() && part.wrong_shapes.empty() && part.wrong_types.empty()) {
    line("all tensors that clips need are there");
  }
}

void print_part(const PartSurvey& part, Verdict& verdict) {
  std::cout << '\n' << part_folder(part.part);
  if (!part.class_name.empty()) std::cout << ": " << part.class_name;
  std::cout << '\n';
  if (part.tensors > 0) {
    if (part.status == Status::ok) line(highlights(part));
    print_weights(part);
  }
  if (part.status != Status::ok) {
    line("not usable: " + part.problem);
    verdict.add(part.status, part.problem);
  } else if (part.verdict() != Status::ok) {
    verdict.add(part.verdict(),
                fmt::format("{}: {} tensors are missing, {} have another shape, {} another type",
                            part.folder.string(), part.missing.size(), part.wrong_shapes.size(),
                            part.wrong_types.size()));
  }
}

// Calls `print`; if it throws, reports the part as unusable and records the problem.
template <class Print>
void attempt(Verdict& verdict, Print&& print) {
  try {
    print();
  } catch (const Error& error) {
    line(std::string("not usable: ") + error.what());
    verdict.add(error.status(), error.what());
  }
}

void print_tokenizer(const ModelPaths& paths) {
  const std::string name = class_in_index(paths, "tokenizer");
  std::cout << "\ntokenizer: " << (name.empty() ? "T5Tokenizer" : printable(name)) << '\n';
  line(fmt::format("{} ids, from {}", with_separators(Tokenizer::open(paths).vocabulary_size()),
                   tokenizer_file(paths).filename().string()));
}

void print_scheduler(const ModelPaths& paths) {
  std::cout << "\nscheduler";
  const Config config = Config::read(paths.scheduler / "scheduler_config.json");
  const NamedClass named = class_of_part(paths, "scheduler", config);
  const std::string& name = named.name;
  std::cout << ": " << name << '\n';
  if (name == IddpmConfig::class_name || name == RectifiedFlowConfig::class_name) {
    line(fmt::format("{} steps, guidance {}", config.get_int("num_sampling_steps", 0),
                     config.get_double("cfg_scale", 0)));
    return;
  }
  if (find_sampler(flow_samplers(), name, &FlowSampler::class_name) != nullptr) {
    const FlowSettings flow = read_flow_scheduler(config, named).settings;
    line(fmt::format("noise levels of {} timesteps, shift {}", flow.num_train_timesteps,
                     flow.shift));
    return;
  }
  const SchedulerConfig s = read_scheduler(config);
  line(fmt::format("{}, {} spacing of {} timesteps, SNR shift {}", printable(s.prediction_type),
                   printable(s.timestep_spacing), s.num_train_timesteps, s.snr_shift_scale));
}

// What clips of this model begin from, and the options that give it.
std::string accepted_inputs(const Family& family, bool has_encoder) {
  std::vector<std::string> inputs;
  if (family.takes(InputKind::none)) inputs.emplace_back("text");
  if (family.takes(InputKind::image)) {
    inputs.emplace_back(family.last_image() == LastImage::never
                            ? "text and an image (prompt.image)"
                            : "text, and a first and a last image (prompt.image, "
                              "prompt.last-image)");
  }
  if (family.takes(InputKind::video) && has_encoder) {
    inputs.emplace_back("text and a video (prompt.video)");
  }
  return fmt::format("{}", fmt::join(inputs, ", or "));
}

// Opens the model as `run` does, which checks that its parts match, and prints the default clip.
void print_whole(const ModelPaths& paths, bool has_encoder) {
  const auto family = Family::open(paths);
  family->check_weights(false);
  family->open_tokenizer();
  const ClipDefaults clip = family->defaults();
  std::cout << "\nclip, unless the job says otherwise\n";
  line("made from " + accepted_inputs(*family, has_encoder));
  line(fmt::format(
      "{} frames of {} x {} pixels (height, width), {} frames a second, {} steps, "
      "guidance {}",
      clip.size.frames, clip.size.height, clip.size.width, clip.fps, clip.steps, clip.guidance));
}

// Counts of equal items: "a (42), b (2)".
std::string counted(const std::map<std::string, int>& counts) {
  std::string text;
  for (const auto& [item, count] : counts) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", printable(item), count);
  }
  return text;
}

// → the number of tensors that do not belong to a LoRA.
std::size_t print_lora(const fs::path& path, double scale) {
  std::cout << "\nlora: " << path.string() << '\n';
  const Lora lora = Lora::open(path);
  std::int64_t parameters = 0, bytes = 0;
  for (const auto& [name, info] : lora.file().tensors()) {
    parameters += numel(info.shape);
    bytes += info.bytes;
  }
  line(fmt::format("{} tensors, {} parameters, {} bytes ({})",
                   with_separators(std::ssize(lora.file().tensors())), with_separators(parameters),
                   with_separators(bytes), format_bytes(static_cast<double>(bytes))));
  line("names: " + lora.names());
  if (const std::string left_out = lora.left_out(); !left_out.empty()) line(left_out);
  std::map<std::string, int> modules, ranks, factors, differences;
  for (const auto& [name, module] : lora.modules()) {
    ++modules[without_numbers(name)];
    for (const std::string* tensor :
         {&module.difference, &module.bias_difference, &module.table_difference}) {
      if (!tensor->empty()) ++differences[tensor->substr(tensor->rfind('.') + 1)];
    }
    if (module.rank == 0) continue;
    ++ranks[std::to_string(module.rank)];
    ++factors[fmt::format("{:.6g}", module.factor)];
  }
  line(fmt::format("{} modules: {}", lora.modules().size(), counted(modules)));
  if (!differences.empty()) line("differences of whole tensors: " + counted(differences));
  line("rank " + counted(ranks));
  line(fmt::format("factor, alpha / rank: {}; alpha: {}", counted(factors),
                   lora.source_of_factors()));
  if (scale != 1) line(fmt::format("times {}, the scale that is given", scale));
  list(lora.others(), "tensors that are not those of a LoRA",
       [](const std::string& name) { return printable(name); });
  return lora.others().size();
}

void print_index(const fs::path& model, Verdict& verdict) {
  const fs::path file = model / "model_index.json";
  const ModelIndex index = read_model_index(file);
  std::string parts;
  for (const auto& [name, part] : index.parts) {
    parts += fmt::format("{}{} ({})", parts.empty() ? "" : ", ", printable(name),
                         printable(part.class_name));
  }
  std::cout << model.string() << ": " << printable(index.class_name) << '\n';
  line("parts: " + parts);
  attempt(verdict, [&] { Family::find(file); });
}

}  // namespace

Status inspect_command(int argc, const char* const* argv) {
  const InspectOptions options = parse_inspect(argc, argv);
  const fs::path& model = options.model;
  if (log::launch_rank() != first_rank) return Status::ok;  // only one rank prints
  std::error_code ignored;
  if (!fs::exists(model / "model_index.json", ignored) && may_be_lora(model)) {
    require(options.loras.empty(), Status::usage,
            "--lora: given with a LoRA as the argument, expected the folder of a model");
    const std::size_t others = print_lora(model, 1);
    require(others == 0, Status::data, "{}: {} tensors are not those of a LoRA, expected none",
            model.string(), others);
    return Status::ok;
  }
  require(fs::is_directory(model, ignored), Status::no_input, "{}: no such folder", model.string());

  ModelPaths paths{.root = model};
  paths.complete();
  paths.check_links();
  Verdict verdict;
  print_index(model, verdict);
  const PartSurvey transformer =
      survey(ModelPart::transformer, model / part_folder(ModelPart::transformer));
  print_part(transformer, verdict);
  for (const LoraFile& lora : options.loras) {
    attempt(verdict, [&] {
      print_lora(lora.path, lora.scale);
      ModelPaths one = paths;
      one.loras = {lora};
      const Checkpoint changed = one.open(ModelPart::transformer);
      for (const std::string& left_out : changed.changes()->left_out()) line(left_out);
      line("fits the transformer");
    });
  }
  PartSurvey vae;
  for (const ModelPart part : model_parts) {
    const bool known = transformer.status == Status::ok;  // its configuration is valid
    const bool needed = known ? needs(*transformer.config, part) : !model_folder(part).optional;
    if (part == ModelPart::transformer || (!needed && !paths.has(part))) continue;
    PartSurvey found = survey(part, model / part_folder(part), &transformer);
    print_part(found, verdict);
    if (part == ModelPart::vae) vae = std::move(found);
  }
  attempt(verdict, [&] { print_tokenizer(paths); });
  attempt(verdict, [&] { print_scheduler(paths); });
  if (verdict.status == Status::ok) {
    attempt(verdict, [&] { print_whole(paths, vae.has_encoder()); });
  }
  std::cout << std::flush;
  if (verdict.status == Status::ok) return Status::ok;
  const std::size_t more = verdict.problems.size() - 1;
  fail(verdict.status, "{} cannot be run: {}{}", model.string(), verdict.problems.front(),
       more == 0 ? "" : fmt::format(" (and {} more, see above)", more));
}

}  // namespace reelmesh::app
