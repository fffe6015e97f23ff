#include "models/common/paths.hpp"

#include "base/error.hpp"

namespace reelmesh {

void check_folders(const ModelPaths& paths) {
  const auto need = [](const std::filesystem::path& folder, const char* option) {
    require(std::filesystem::is_directory(folder), Status::no_input, "{}: there is no folder {}",
            option, folder.string());
  };
  need(paths.root, "model.path");
  need(paths.transformer, "model.transformer");
  need(paths.vae, "model.vae");
  need(paths.text_encoder, "model.text-encoder");
  need(paths.tokenizer, "model.tokenizer");
  need(paths.scheduler, "model.scheduler");
}

}  // namespace reelmesh
