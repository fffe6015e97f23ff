#pragma once
// Prompts → token ids, as T5Tokenizer of transformers gives them.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace reelmesh {

/// A prompt as the text encoder takes it.
struct Encoded {
  std::vector<std::int32_t> ids;  ///< [max_length]: the text, </s>, and <pad> up to the end
  std::int64_t kept = 0;          ///< ids that are not padding, </s> included
  std::string cut;                ///< the words behind the limit; empty when all fit
};

/// The tokenizer of T5: pieces of a sentencepiece model, with ids 0 <pad>, 1 </s>, 2 <unk>, and
/// behind them the sentinels, of which <extra_id_0> has the highest id: as many as
/// tokenizer_config.json says (extra_ids), 100 where it does not.
class Tokenizer {
 public:
  /// Reads spiece.model in `folder`, and tokenizer_config.json where there is one. Throws
  /// Error(no_input) when the model is not there, and Error(data) when it is damaged or not of T5's
  /// kind, or when extra_ids is not a number from 0 to 65536.
  static Tokenizer open(const std::filesystem::path& folder);

  /// Any bytes are taken; what is not UTF-8 becomes <unk>. `max_length` ≥ 1 counts </s>.
  ///
  /// The rules are those of the slow T5Tokenizer with legacy = true, which CogVideoX's folders ask
  /// for: names of special tokens in the text stand for the tokens, each part between them is
  /// encoded as a text of its own, and a text that ends in </s> gets no second one.
  Encoded encode(std::string_view text, std::int64_t max_length) const;

  /// Ids that are given instead of a text, as encode() would give them: at most max_length, none of
  /// them beyond the vocabulary, the last one </s>, behind which there may be padding. Padding is
  /// added. Error(usage) that begins with `where`, saying what was found and what is expected.
  Encoded accept(std::vector<std::int32_t> ids, std::int64_t max_length,
                 const std::string& where) const;

  /// All ids are below this: pieces and sentinels. The embedding must have as many rows.
  std::int64_t vocabulary_size() const;

 private:
  struct Special {
    std::string name;
    std::int32_t id;
    bool eats_spaces;  ///< around it, as sentinels do
  };

  Tokenizer() = default;
  std::vector<std::int32_t> ids_of(std::string_view text) const;
  void append_pieces(std::string_view text, std::vector<std::int32_t>& ids) const;
  const Special* special_at(std::string_view text, std::size_t at) const;
  std::string decode(const std::vector<std::int32_t>& ids) const;

  std::shared_ptr<const sentencepiece::SentencePieceProcessor> model_;
  std::vector<Special> specials_;
  std::int32_t sentinels_ = 0;
};

}  // namespace reelmesh
