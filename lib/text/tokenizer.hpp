#pragma once
// Prompts → token ids, equal to those of T5Tokenizer in transformers.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace reelmesh {

/// A tokenized prompt, the input of the text encoder.
struct Encoded {
  std::vector<std::int32_t> ids;  ///< [max_length]: the text, </s>, and <pad> up to the end
  std::int64_t kept = 0;          ///< number of ids that are not padding, </s> included
  std::string cut;                ///< the words that were cut off; empty if all fit
};

/// The tokenizer of T5: pieces of a sentencepiece model, with ids 0 <pad>, 1 </s>, 2 <unk>. After
/// them come the sentinels, in descending order: <extra_id_0> has the highest id. Their number is
/// extra_ids in tokenizer_config.json, by default 100.
class Tokenizer {
 public:
  /// Reads spiece.model in `folder`, and tokenizer_config.json if it exists. Throws Error(no_input)
  /// if spiece.model is missing, Error(data) if it is damaged or has other special tokens than T5,
  /// or if extra_ids is not an integer from 0 to 65536.
  static Tokenizer open(const std::filesystem::path& folder);

  /// Accepts any bytes; those that are not UTF-8 become <unk>. `max_length` ≥ 1 includes </s>.
  ///
  /// The rules are those of the slow T5Tokenizer with legacy = true, which the tokenizer configs of
  /// CogVideoX request: names of special tokens in the text become these tokens, each part between
  /// them is encoded separately, and a text that ends in </s> gets no second one.
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
  struct Special {
    std::string name;
    std::int32_t id;
    bool strips_spaces;  ///< whether spaces around it are stripped (sentinels)
  };

  Tokenizer() = default;
  std::vector<std::int32_t> text_ids(std::string_view text) const;
  void append_pieces(std::string_view text, std::vector<std::int32_t>& ids) const;
  const Special* special(std::string_view name) const;  ///< null if there is none
  const Special* special_at(std::string_view text, std::size_t at) const;
  std::string decode(const std::vector<std::int32_t>& ids) const;

  std::shared_ptr<const sentencepiece::SentencePieceProcessor> model_;
  std::vector<Special> specials_;
  std::map<std::string, std::size_t, std::less<>> by_name_;  ///< indices of specials_
  std::int32_t sentinels_ = 0;
};

}  // namespace reelmesh
