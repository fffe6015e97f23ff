#pragma once
#include <filesystem>
#include <string>

namespace reelmesh {

struct ModelPaths;

/// The file that a tokenizer is read from, spiece.model or tokenizer.json in `folder`. Where both
/// are there, it is the one that the reference reads for this class of tokenizer:
/// - spiece.model for T5Tokenizer, which in transformers 4 reads nothing else. If the "backend" in
///   tokenizer_config.json is "tokenizers", transformers 5 wrote the folder, whose T5Tokenizer
///   reads tokenizer.json.
/// - tokenizer.json for other classes (T5TokenizerFast), and if none is named.
///
/// If neither is there, the path of spiece.model. Errors of Config::read for tokenizer_config.json.
std::filesystem::path tokenizer_file(const std::filesystem::path& folder,
                                     const std::string& class_name);
/// The same for the tokenizer of a model, whose class model_index.json names.
std::filesystem::path tokenizer_file(const ModelPaths& paths);

}  // namespace reelmesh
