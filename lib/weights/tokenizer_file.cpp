#include "weights/tokenizer_file.hpp"

#include "weights/config.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

std::filesystem::path tokenizer_file(const std::filesystem::path& folder,
                                     const std::string& class_name) {
  const std::filesystem::path pieces = folder / "spiece.model", json = folder / "tokenizer.json",
                              config = folder / "tokenizer_config.json";
  std::error_code error;
  if (!std::filesystem::exists(json, error)) return pieces;
  if (!std::filesystem::exists(pieces, error) || class_name != "T5Tokenizer") return json;
  const bool of_transformers_5 = std::filesystem::exists(config, error) &&
                                 Config::read(config).get_string("backend", "") == "tokenizers";
  return of_transformers_5 ? json : pieces;
}

std::filesystem::path tokenizer_file(const ModelPaths& paths) {
  return tokenizer_file(paths.tokenizer, class_in_index(paths, "tokenizer"));
}

}  // namespace reelmesh
