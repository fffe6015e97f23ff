#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace reelmesh {

class Checkpoint;

/// A file of low-rank changes of a model's weights (LoRA).
struct LoraFile {
  std::filesystem::path path;  ///< the file, or a folder with it (Lora::open)
  double scale = 1;            ///< of all its changes
};

/// The parts of a model that have weights.
enum class ModelPart { transformer, vae, text_encoder };

/// Folders of a model in the layout of the Hugging Face hub: model_index.json and one per part.
struct ModelPaths {
  std::filesystem::path root;  ///< folder with model_index.json
  // Folders of the parts; root/<part> unless the user gives another.
  std::filesystem::path transformer, vae, text_encoder, tokenizer, scheduler;
  std::vector<LoraFile> loras;  ///< of the transformer; their changes add up
  bool strict_loras = false;    ///< those with modules that are not used are refused

  /// Sets the folders of parts that are empty to root/<part>.
  void complete();
  /// Error(no_input) if a folder or a LoRA is missing, naming the option that sets it.
  void check() const;
  /// Error(data) if a symbolic link leads out of the checkpoint: model_index.json, the folder of a
  /// part, or an entry of one. A checkpoint is `root` with its parts; a part's folder outside it,
  /// which the user gives, is a checkpoint of its own. The folder of a checkpoint may itself be a
  /// link. In the cache of the Hugging Face hub, links may lead to the blobs/ of the same model.
  /// Links that lead nowhere are left to the functions that open files.
  void check_links() const;

  /// For people: "models/x with LoRA ink.safetensors (scale 0.8), orbit.safetensors".
  std::string described() const;

  // The weights of the parts, the transformer's with its LoRAs. Errors as Checkpoint::open and
  // Checkpoint::with.
  Checkpoint open_transformer() const;
  Checkpoint open_vae() const;
  Checkpoint open_text_encoder() const;
  Checkpoint open(ModelPart part) const;
};

}  // namespace reelmesh
