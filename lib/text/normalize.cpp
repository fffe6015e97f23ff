#include "text/normalize.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "text/graphemes.hpp"
#include "text/model_check.hpp"
#include "text/unicode.hpp"

namespace reelmesh {
namespace {

/// A character of a changed text: it replaces one character, −n: and the n after it, +1: none.
struct ChangedCharacter {
  wchar_t character;
  std::ptrdiff_t change;
};

void append_change(std::vector<ChangedCharacter>& changed, std::wstring_view from,
                   std::wstring_view to) {
  for (const wchar_t c : to) changed.push_back({c, 0});
  const std::ptrdiff_t more = std::ssize(to) - std::ssize(from);
  for (std::size_t i = from.size(); i < to.size(); ++i) {
    changed[changed.size() - to.size() + i].change = 1;
  }
  if (more < 0 && !changed.empty()) changed.back().change += more;
}

void take_changes(TextPart& part, const std::vector<ChangedCharacter>& changed) {
  const std::size_t before = part.at_begin;
  part = {};
  std::ptrdiff_t from = 0;  // index in the text before
  for (const auto& [character, change] : changed) {
    const std::ptrdiff_t origin = change > 0 ? std::max<std::ptrdiff_t>(from - 1, 0) : from;
    if (origin < static_cast<std::ptrdiff_t>(before)) ++part.at_begin;
    part.text += character;
    if (change <= 0) from += 1 - change;
  }
}

}  // namespace

TextPart TextPart::part(std::size_t begin, std::size_t end) const {
  return {text.substr(begin, end - begin), std::clamp(at_begin, begin, end) - begin};
}

Charsmap::Charsmap(std::string table, const std::string& source) {
  require(!table.empty() && is_sound_table(table), Status::data,
          "{}: damaged, expected a table of normalisation", source);
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, table.data(), sizeof bytes);
  trie_.resize(bytes / sizeof bytes);
  std::memcpy(trie_.data(), table.data() + sizeof bytes, trie_.size() * sizeof bytes);
  texts_ = table.substr(sizeof bytes + bytes);
}

std::optional<std::wstring> Charsmap::replacement(std::wstring_view text) const {
  // The format is described in model_check.cpp, which has checked all positions.
  const auto offset = [](std::uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); };
  std::uint32_t at = offset(trie_[0]);
  for (const char c : encode_utf8(text)) {
    const std::uint32_t label = static_cast<unsigned char>(c);
    at ^= label;
    const std::uint32_t unit = trie_[at];
    if (label == 0 || (unit & 0x800000ffU) != label) return std::nullopt;
    at ^= offset(unit);
    if ((unit & 0x100U) == 0) continue;
    return decode_utf8(texts_.c_str() + (trie_[at] & 0x7fffffffU));
  }
  return std::nullopt;
}

void Charsmap::apply(TextPart& part) const {
  constexpr std::size_t max_cluster = 5;  // bytes
  std::vector<ChangedCharacter> changed;
  bool modified = false;
  const auto replace = [&](std::wstring_view from) {
    const auto to = replacement(from);
    if (to) append_change(changed, from, *to);
    modified = modified || to;
    return to.has_value();
  };
  std::wstring_view rest = part.text;
  while (!rest.empty()) {
    const std::wstring_view cluster = rest.substr(0, grapheme_length(rest));
    rest.remove_prefix(cluster.size());
    if (encode_utf8(cluster).size() <= max_cluster && replace(cluster)) continue;
    for (const wchar_t& c : cluster) {
      if (!replace({&c, 1})) changed.push_back({c, 0});
    }
  }
  if (modified) take_changes(part, changed);
}

void strip_spaces(TextPart& part, bool left, bool right) {
  std::size_t begin = 0, end = part.text.size();
  while (left && begin < end && is_white_space(part.text[begin])) ++begin;
  while (right && begin < end && is_white_space(part.text[end - 1])) --end;
  part = part.part(begin, end);
}

void replace_spaces(TextPart& part, wchar_t by) {
  TextPart result;
  for (std::size_t at = 0; at < part.text.size();) {
    const std::size_t end = std::min(part.text.find_first_not_of(L' ', at), part.text.size());
    const bool replaced = end >= at + 2;
    result.text += replaced ? by : part.text[at];
    at = replaced ? end : at + 1;
    if (at <= part.at_begin) result.at_begin = result.text.size();
  }
  part = std::move(result);
}

std::vector<TextPart> words_of(const TextPart& part) {
  std::vector<TextPart> words;
  const auto& text = part.text;
  for (auto begin = text.begin(); begin != text.end();) {
    begin = std::find_if_not(begin, text.end(), is_white_space);
    const auto end = std::find_if(begin, text.end(), is_white_space);
    if (begin != end) {
      words.push_back(part.part(static_cast<std::size_t>(begin - text.begin()),
                                static_cast<std::size_t>(end - text.begin())));
    }
    begin = end;
  }
  return words;
}

std::vector<TextPart> Metaspace::apply(const TextPart& part) const {
  TextPart marked = part;
  std::ranges::replace(marked.text, L' ', mark);
  if (!marked.text.empty() && marked.text[0] != mark &&
      (prepend == Prepend::always || (prepend == Prepend::first && part.at_begin > 0))) {
    marked.text.insert(marked.text.begin(), mark);
    if (marked.at_begin > 0) ++marked.at_begin;
  }
  if (!split) return {std::move(marked)};
  std::vector<TextPart> parts;
  for (std::size_t begin = 0; begin < marked.text.size();) {
    const std::size_t end = std::min(marked.text.find(mark, begin + 1), marked.text.size());
    parts.push_back(marked.part(begin, end));
    begin = end;
  }
  return parts;
}

std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t digit = i + padding < text.size() ? digits.find(text[i]) : 0;
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(bits >> shift & 0xffU);
  }
  return bytes.substr(0, bytes.size() - padding);
}

}  // namespace reelmesh
