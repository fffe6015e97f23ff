#include "text/unigram.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "text/unicode.hpp"

namespace reelmesh {

Unigram::Unigram(std::vector<std::wstring> pieces, std::vector<double> scores, std::int32_t unknown,
                 bool byte_fallback)
    : pieces_(std::move(pieces)), scores_(std::move(scores)), unknown_(unknown) {
  expect(unknown >= 0 && unknown < size() && scores_.size() == static_cast<std::size_t>(size()),
         "{} pieces, {} scores, unknown {}", size(), scores_.size(), unknown);
  constexpr double penalty = 10;
  unknown_score_ = std::ranges::min(scores_) - penalty;
  for (int byte = 0; byte_fallback && byte < 256; ++byte) {
    bytes_.push_back(find(decode_utf8(fmt::format("<0x{:02X}>", byte))));
  }
}

int Unigram::byte_of(std::int32_t id) const {
  const auto found = std::ranges::find(bytes_, id);
  return found == bytes_.end() ? -1 : static_cast<int>(found - bytes_.begin());
}

void Unigram::append_unknown(std::wstring_view text, std::vector<std::int32_t>& ids) const {
  std::int32_t id = find(text);
  if (id < 0 && !bytes_.empty()) {
    const std::string bytes = encode_utf8(text);
    const auto id_of = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
    if (std::ranges::all_of(bytes, [&](char byte) { return id_of(byte) >= 0; })) {
      std::ranges::transform(bytes, std::back_inserter(ids), id_of);
      return;
    }
  }
  ids.push_back(id < 0 ? unknown_ : id);
}

void Unigram::append_ids(std::wstring_view word, std::vector<std::int32_t>& ids) const {
  struct Path {  // the best one to an end within the word
    double score = 0;
    std::size_t length = 0;  // of its last piece; 0 if there is no path
    std::int32_t id = 0;     // of its last piece
  };
  std::vector<Path> paths(word.size() + 1);
  for (std::size_t begin = 0; begin < word.size(); ++begin) {
    const auto offer = [&](std::size_t length, std::int32_t id, double score) {
      Path& path = paths[begin + length];
      const double sum = score + paths[begin].score;
      if (path.length == 0 || sum > path.score) path = {sum, length, id};
    };
    bool has_character = false;
    pieces_.each_prefix(word.substr(begin), [&](std::size_t length, std::int32_t id) {
      offer(length, id, scores_[static_cast<std::size_t>(id)]);
      has_character = has_character || length == 1;
    });
    if (!has_character) offer(1, unknown_, unknown_score_);
  }
  std::vector<std::size_t> ends;  // of the best path's pieces, the last first
  for (std::size_t end = word.size(); end > 0; end -= paths[end].length) ends.push_back(end);
  std::size_t unknown_begin = word.size();
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const Path& path = paths[*end];
    if (path.id != unknown_) {
      ids.push_back(path.id);
      continue;
    }
    unknown_begin = std::min(unknown_begin, *end - path.length);
    if (std::next(end) != ends.rend() && paths[*std::next(end)].id == unknown_) continue;
    append_unknown(word.substr(unknown_begin, *end - unknown_begin), ids);
    unknown_begin = word.size();
  }
}

}  // namespace reelmesh
