#pragma once
#include <filesystem>

namespace reelmesh {

class Checkpoint;

/// Folders of a model in the layout of the Hugging Face hub: model_index.json and one per part.
struct ModelPaths {
  std::filesystem::path root;  ///< folder with model_index.json
  // Folders of the parts; root/<part> unless the user gives another.
  std::filesystem::path transformer, vae, text_encoder, tokenizer, scheduler;

  /// Error(no_input) if a folder is missing, naming the option that sets it.
  void check() const;

  // The weights of the parts. Errors as Checkpoint::open.
  Checkpoint open_transformer() const;
  Checkpoint open_vae() const;
  Checkpoint open_text_encoder() const;
};

}  // namespace reelmesh
