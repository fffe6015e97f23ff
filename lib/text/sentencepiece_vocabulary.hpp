#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>

#include "text/vocabulary.hpp"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace reelmesh {

/// The vocabulary of the slow T5Tokenizer in transformers 4: pieces of a sentencepiece model, with
/// ids 0 <pad>, 1 </s>, 2 <unk>. After them come the sentinels, in descending order: <extra_id_0>
/// has the highest id.
///
/// Names of special tokens in a text become these tokens; each part between them is encoded
/// separately. With legacy = true a part begins with a space, which the model adds; with false only
/// the text does, if add_prefix_space is true.
class SentencepieceVocabulary : public Vocabulary {
 public:
  /// Reads spiece.model at `path`, and extra_ids (default 100), legacy (default true) and
  /// add_prefix_space (default true; null is false) in tokenizer_config.json beside it if that
  /// exists. Throws Error(data) if a file is damaged, if the model has other special tokens than
  /// T5, or if extra_ids is not an integer from 0 to 65536.
  explicit SentencepieceVocabulary(const std::filesystem::path& path);

  std::int64_t size() const override;
  /// Bytes that are not UTF-8 become <unk>.
  std::vector<std::int32_t> ids(std::string_view text) const override;
  /// As the reference decodes them: special tokens by name, spaces around sentinels.
  std::string words(const std::vector<std::int32_t>& ids) const override;
  bool ends_twice() const override { return false; }

 private:
  struct Special {
    std::string name;
    std::int32_t id;
    bool strips_spaces;  ///< whether spaces around it are stripped (sentinels)
  };
  using Pieces = std::vector<std::string>;

  Pieces pieces(std::string_view text) const;
  void append_pieces(std::string_view text, Pieces& pieces) const;
  Pieces encode(std::string_view text) const;
  const Special* special(std::string_view name) const;  ///< null if there is none
  const Special* special_at(std::string_view text, std::size_t at) const;

  std::shared_ptr<const sentencepiece::SentencePieceProcessor> model_;
  std::vector<Special> specials_;
  std::map<std::string, std::size_t, std::less<>> by_name_;  ///< indices of specials_
  std::int32_t sentinels_ = 0;
  bool legacy_ = true, prefix_space_ = true;
  std::size_t unknown_pieces_ = 0;  ///< number of pieces of the text "<unk>"
};

}  // namespace reelmesh
