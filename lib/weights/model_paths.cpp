#include "weights/model_paths.hpp"

#include "base/error.hpp"
#include "weights/checkpoint.hpp"

namespace reelmesh {

void ModelPaths::check() const {
  const auto need = [](const std::filesystem::path& folder, const char* option) {
    require(std::filesystem::is_directory(folder), Status::no_input, "{}: folder {} not found",
            option, folder.string());
  };
  need(root, "model.path");
  need(transformer, "model.transformer");
  need(vae, "model.vae");
  need(text_encoder, "model.text-encoder");
  need(tokenizer, "model.tokenizer");
  need(scheduler, "model.scheduler");
}

Checkpoint ModelPaths::open_transformer() const {
  return Checkpoint::open(transformer, "diffusion_pytorch_model");
}

Checkpoint ModelPaths::open_vae() const { return Checkpoint::open(vae, "diffusion_pytorch_model"); }

Checkpoint ModelPaths::open_text_encoder() const { return Checkpoint::open(text_encoder, "model"); }

}  // namespace reelmesh
