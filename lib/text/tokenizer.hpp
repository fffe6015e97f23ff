#pragma once
// Prompts → token ids, equal to those of the tokenizers of T5 in transformers.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh {

struct ModelPaths;
class Vocabulary;

/// A tokenized prompt, the input of the text encoder.
struct Encoded {
  std::vector<std::int32_t> ids;  ///< [max_length]: the text, </s>, and <pad> up to the end
  std::int64_t kept = 0;          ///< number of ids that are not padding, </s> included
  std::string cut;                ///< the words that were cut off; empty if all fit
};

/// The tokenizer of T5, from spiece.model (SentencepieceVocabulary) or tokenizer.json
/// (TokenizerJson). Id 0 is <pad>, 1 is </s>.
class Tokenizer {
 public:
  /// Reads the tokenizer_file() in `folder`, for a tokenizer of the class `class_name`. Throws
  /// Error(no_input) if the folder has none, and the errors of the two vocabularies.
  static Tokenizer open(const std::filesystem::path& folder, const std::string& class_name = "");
  /// The same for the tokenizer of a model, whose class model_index.json names.
  static Tokenizer open(const ModelPaths& paths);

  /// One that knows no words, of so many ids, for plans: each text has the most tokens.
  static Tokenizer without_vocabulary(std::int64_t ids);

  /// Accepts any bytes; those that are not UTF-8 become <unk>. `max_length` ≥ 1 includes </s>.
  Encoded encode(std::string_view text, std::int64_t max_length) const;

  /// Checks and pads ids that are given instead of a text: at most max_length, all within the
  /// vocabulary, ending in </s> and optional padding. Error(usage), beginning with `where`, says
  /// what was found and what is expected.
  Encoded accept(std::vector<std::int32_t> ids, std::int64_t max_length,
                 const std::string& where) const;

  /// Number of pieces and sentinels; all ids are below it. The text encoder's embedding must have
  /// at least as many rows.
  std::int64_t vocabulary_size() const;

 private:
  Tokenizer(std::shared_ptr<const Vocabulary> vocabulary, std::int64_t ids);

  std::shared_ptr<const Vocabulary> vocabulary_;  // null: without
  std::int64_t ids_ = 0;
};

}  // namespace reelmesh
