#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weights/config.hpp"

namespace reelmesh {

class Checkpoint;

/// A file of low-rank changes of a model's weights (LoRA).
struct LoraFile {
  std::filesystem::path path;  ///< the file, or a folder with it (Lora::open)
  double scale = 1;            ///< of all its changes
};

/// The parts of a model that have weights: rows of model_folders.
enum class ModelPart { transformer, vae, text_encoder, image_encoder, transformer_2 };

/// Folders of a model in the layout of the Hugging Face hub: model_index.json and one per part.
struct ModelPaths {
  std::filesystem::path root;  ///< folder with model_index.json
  // Folders of the parts; root/<part> unless the user gives another.
  std::filesystem::path transformer, vae, text_encoder, tokenizer, scheduler;
  // Of parts that not all models have; empty if neither model_index.json nor the user names them.
  std::filesystem::path transformer_2, image_encoder, image_processor;
  std::string variant;            ///< of the weight files, as Checkpoint::open; empty: none
  std::vector<LoraFile> loras;    ///< of the transformer; their changes add up
  std::vector<LoraFile> loras_2;  ///< of a second transformer, likewise
  bool strict_loras = false;      ///< those with modules that are not used are refused
  bool allow_unread = false;      ///< tensors within blocks that nothing reads are no error
  /// For a plan: parts may have no weight files, and there may be no tokenizer.
  bool without_weights = false;

  /// Sets the folders of parts that are empty to root/<part>; of optional ones, only if
  /// model_index.json names them. Folders of the cache of the Hugging
  /// Face hub (models--ORG--NAME) become those of their snapshot, and so does ORG/NAME if there is
  /// no such folder, but one of the cache.
  void complete();
  /// Error(no_input) if a folder or a LoRA is missing, naming the option that sets it, or if no
  /// part has files of the variant; Error(usage) for the folder of a part that the model does not
  /// have.
  void check() const;
  /// Error(no_input) unless the folder of a part is there, naming its option.
  void need(ModelPart part) const;
  /// Error(no_input) unless there is a model_index.json, with what the path is instead if that is
  /// known: a file, the name of a model on the hub, a release of Open-Sora, a part of a model.
  void check_root() const;
  /// Error(data) if a symbolic link leads out of the checkpoint: model_index.json, the folder of a
  /// part, or an entry of one. A checkpoint is `root` with its parts; a part's folder outside it,
  /// which the user gives, is a checkpoint of its own. The folder of a checkpoint may itself be a
  /// link. In the cache of the Hugging Face hub, links may lead to the blobs/ of the same model.
  /// Links that lead nowhere are left to the functions that open files.
  void check_links() const;

  const std::filesystem::path& folder(ModelPart part) const;
  bool has(ModelPart part) const { return !folder(part).empty(); }
  std::vector<ModelPart> parts() const;  ///< those that it has, in the order of the rows
  /// Whether the weights of a part can be expected: always, unless there may be none and its folder
  /// has no safetensors file (an index alone is no weights: it is among all *.json of a model).
  bool has_weights(ModelPart part) const;
  bool has_tokenizer() const;  ///< likewise

  /// The LoRAs of a part; none but for transformers.
  const std::vector<LoraFile>& loras_of(ModelPart part) const;

  /// For people: "models/x with LoRA ink.safetensors (scale 0.8), orbit.safetensors".
  std::string text() const;

  /// The weights of a part that it has, a transformer's with its LoRAs. Errors as Checkpoint::open
  /// and Checkpoint::with.
  Checkpoint open(ModelPart part) const;
};

/// A folder of a model beside model_index.json.
struct ModelFolder {
  const char* name;    ///< there, and in model_index.json
  const char* option;  ///< that gives another one
  const char* what;    ///< for the option's help
  std::filesystem::path ModelPaths::*path;
  std::optional<ModelPart> part = {};  ///< whose weights it has; none: only other files
  const char* weights_stem = "";       ///< of the files of these weights
  bool optional = false;               ///< not all models have it
};

/// What models consist of. A part that is added gets a row here: its option, checks of its folder
/// and links, hash, plan of its loading, survey and random weights follow. Where parts differ in
/// code, the compiler wants a case for it.
inline constexpr std::array model_folders{
    ModelFolder{"transformer", "model.transformer", "the transformer", &ModelPaths::transformer,
                ModelPart::transformer, "diffusion_pytorch_model"},
    ModelFolder{"transformer_2", "model.transformer-2",
                "the transformer of the less noisy steps, of a model of two",
                &ModelPaths::transformer_2, ModelPart::transformer_2, "diffusion_pytorch_model",
                /*optional=*/true},
    ModelFolder{"vae", "model.vae", "the VAE", &ModelPaths::vae, ModelPart::vae,
                "diffusion_pytorch_model"},
    ModelFolder{"text_encoder", "model.text-encoder", "T5", &ModelPaths::text_encoder,
                ModelPart::text_encoder, "model"},
    ModelFolder{"tokenizer", "model.tokenizer", "the tokenizer", &ModelPaths::tokenizer},
    ModelFolder{"scheduler", "model.scheduler", "the scheduler's config", &ModelPaths::scheduler},
    ModelFolder{"image_encoder", "model.image-encoder", "the image encoder of Wan 2.1",
                &ModelPaths::image_encoder, ModelPart::image_encoder, "model", /*optional=*/true},
    ModelFolder{"image_processor",
                "model.image-processor",
                "the image encoder's preprocessor",
                &ModelPaths::image_processor,
                {},
                "",
                /*optional=*/true}};

/// All parts, in the order of the rows.
inline constexpr auto model_parts = [] {
  std::array<ModelPart,
             std::ranges::count_if(model_folders, [](const auto& f) { return f.part.has_value(); })>
      parts{};
  std::size_t next = 0;
  for (const ModelFolder& folder : model_folders) {
    if (folder.part) parts[next++] = *folder.part;
  }
  return parts;
}();

/// Error(internal) for a part without a row.
const ModelFolder& model_folder(ModelPart part);
inline const char* part_folder(ModelPart part) { return model_folder(part).name; }
/// Of its weight files: "diffusion_pytorch_model", "model".
inline const char* weights_stem(ModelPart part) { return model_folder(part).weights_stem; }

/// The class that model_index.json names for a part ("tokenizer"); empty if it names none, or is
/// missing. Errors as read_model_index.
std::string class_in_index(const ModelPaths& paths, const std::string& part);

/// The class of a part, and what names it, for messages.
struct NamedClass {
  std::string name;   ///< as there, made printable; "(none)" if nothing names it
  std::string where;  ///< "DIR/model_index.json: scheduler", "DIR/config.json"
};

/// The class of a part ("scheduler") whose folder has this config: as diffusers, the one that
/// model_index.json names; if it names none, or if the user gives another folder for the part, the
/// one in the config. Errors as class_in_index.
NamedClass class_of_part(const ModelPaths& paths, const std::string& part, const Config& config);

}  // namespace reelmesh
