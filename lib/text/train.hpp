#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace reelmesh {

/// Trains a T5 tokenizer (see Tokenizer) on a text with one sentence per line, and writes it to
/// `folder`, which must exist, as a Hugging Face tokenizer folder: spiece.model,
/// tokenizer_config.json, special_tokens_map.json and added_tokens.json.
///
/// The model has at most `vocab_size` pieces, fewer if the text does not yield as many. The same
/// text gives the same bytes. Messages call the text `name`. Throws Error(data) if no model can be
/// trained on it, and Error(cannot_create) if a file cannot be written.
void train_tokenizer(std::string_view text, const std::string& name,
                     const std::filesystem::path& folder, int vocab_size);

/// The same with the text of a file. Throws also Error(no_input) if it cannot be read.
void train_tokenizer(const std::filesystem::path& text_file, const std::filesystem::path& folder,
                     int vocab_size);

}  // namespace reelmesh
