#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/prefix_table.hpp"

namespace reelmesh {

/// Divides words into the pieces whose scores have the largest sum, as the model "Unigram" of the
/// tokenizers library (github.com/huggingface/tokenizers, models/unigram) does.
///
/// A character that no piece covers counts as unknown, with a score that is 10 below the lowest.
/// Unknown characters in a row are one piece, whose id is `unknown`; with byte_fallback its bytes
/// in UTF-8 are the pieces <0x00> to <0xFF> instead, if all that it needs are in the vocabulary.
class Unigram {
 public:
  /// `scores` has a score for each piece; `unknown` is the id of one.
  Unigram(std::vector<std::wstring> pieces, std::vector<double> scores, std::int32_t unknown,
          bool byte_fallback);

  std::int32_t size() const { return pieces_.size(); }
  const std::wstring& piece(std::int32_t id) const { return pieces_.name(id); }
  /// The id of a piece; -1 if it is not there.
  std::int32_t find(std::wstring_view piece) const { return pieces_.find(piece); }
  /// The byte that a piece of byte_fallback stands for; -1 for other pieces.
  int byte_of(std::int32_t id) const;

  void append_ids(std::wstring_view word, std::vector<std::int32_t>& ids) const;

 private:
  void append_unknown(std::wstring_view text, std::vector<std::int32_t>& ids) const;

  PrefixTable pieces_;
  std::vector<double> scores_;
  std::int32_t unknown_;
  double unknown_score_;
  std::vector<std::int32_t> bytes_;  ///< [256] ids, -1 where missing; empty without byte_fallback
};

}  // namespace reelmesh
