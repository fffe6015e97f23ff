#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace reelmesh {

/// Trains a tokenizer of T5's kind (see Tokenizer) on a text of one sentence a line, and writes it
/// to `folder`, which exists, with the files of a Hugging Face tokenizer folder: spiece.model,
/// tokenizer_config.json, special_tokens_map.json and added_tokens.json.
///
/// The model has at most `vocab_size` pieces, fewer if the text gives no more. The same text gives
/// the same bytes. Messages call the text `name`. Throws Error(data) when no model can be made of
/// the text, and Error(cannot_create) when a file cannot be written.
void train_tokenizer(std::string_view text, const std::string& name,
                     const std::filesystem::path& folder, int vocab_size);

/// The same with the text of a file. Throws Error(no_input) also, when it cannot be read.
void train_tokenizer(const std::filesystem::path& text_file, const std::filesystem::path& folder,
                     int vocab_size);

}  // namespace reelmesh
