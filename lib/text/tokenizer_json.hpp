#pragma once
#include <filesystem>
#include <functional>
#include <optional>

#include "text/normalize.hpp"
#include "text/unigram.hpp"
#include "text/vocabulary.hpp"

namespace reelmesh {

/// The vocabulary of tokenizer.json, as fast tokenizers of transformers 4 and all of transformers 5
/// write and read it (github.com/huggingface/tokenizers): added tokens are taken out of the text,
/// what is between them is normalised and divided into words, and these into pieces (Unigram).
///
/// Read is what files of T5 and UMT5 have:
/// - "model": Unigram with "vocab", "unk_id" and "byte_fallback"
/// - "normalizer": Precompiled (once), Strip, Replace of " {2,}", and a Sequence of them
/// - "pre_tokenizer": WhitespaceSplit, Metaspace, and a Sequence of them
/// - "post_processor": TemplateProcessing that adds one </s>
/// - "added_tokens"
/// Other kinds are refused. "truncation", "padding" and "decoder" do not matter. Tokens that only
/// tokenizer_config.json names are not known.
class TokenizerJson : public Vocabulary {
 public:
  /// Throws Error(data), naming the place in the file, if it is damaged or has something else than
  /// the above, or if ids 0 and 1 are not <pad> and </s>.
  explicit TokenizerJson(const std::filesystem::path& path);

  std::int64_t size() const override;
  /// Bytes that are not UTF-8 become U+FFFD.
  std::vector<std::int32_t> ids(std::string_view text) const override;
  /// Added tokens by name; marks become spaces, none of them in front, and pieces of bytes become
  /// these bytes.
  std::string words(const std::vector<std::int32_t>& ids) const override;
  bool ends_twice() const override { return true; }

 private:
  struct AddedToken {
    std::wstring name;
    std::int32_t id;
    bool single_word;   ///< whether it must not touch another word
    bool strips_left;   ///< whether white space before it belongs to it
    bool strips_right;  ///< and after it
  };
  /// Tokens that are looked for together.
  struct AddedTokens {
    std::vector<AddedToken> tokens;
    PrefixTable names{{}};  ///< positions are those of `tokens`
  };
  /// A part of a text that is a token, or that lies between tokens.
  struct Section {
    TextPart part;
    const AddedToken* token = nullptr;
  };
  using Normalizer = std::function<void(TextPart&)>;
  using Splitter = std::function<std::vector<TextPart>(const TextPart&)>;
  class Value;

  void read_model(const Value& model);
  void read_normalizer(const Value& normalizer);
  void read_splitter(const Value& splitter);
  void read_added_tokens(const Value& tokens);
  static void check_template(const Value& processor);
  void normalize(TextPart& part) const;
  static std::vector<Section> sections(const TextPart& part, const AddedTokens& tokens);

  std::optional<Unigram> model_;
  AddedTokens raw_tokens_;          ///< looked for in the text
  AddedTokens normalized_tokens_;   ///< looked for after normalisation
  std::vector<std::wstring> more_;  ///< names of the ids behind those of the model
  bool has_table_ = false;          ///< whether one of normalizers_ is Precompiled
  std::vector<Normalizer> normalizers_;
  std::vector<Splitter> splitters_;
  std::optional<wchar_t> mark_;  ///< of Metaspace
};

}  // namespace reelmesh
