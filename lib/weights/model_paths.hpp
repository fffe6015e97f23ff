#pragma once
#include <filesystem>

namespace reelmesh {

class Checkpoint;

/// Where a model is, as the Hugging Face hub holds it: model_index.json and a folder for each part.
struct ModelPaths {
  std::filesystem::path root;  ///< folder with model_index.json
  // Folders of the parts; root/<part> unless the user named another.
  std::filesystem::path transformer, vae, text_encoder, tokenizer, scheduler;

  /// Error(no_input) where one of the folders is not there, naming the option that names it.
  void check() const;

  // The weights of the parts. Errors as Checkpoint::open.
  Checkpoint open_transformer() const;
  Checkpoint open_vae() const;
  Checkpoint open_text_encoder() const;
};

}  // namespace reelmesh
