#include "text/compose.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/text_tables.hpp"

namespace reelmesh {
namespace {

// Syllables of Hangul are computed.
constexpr wchar_t first_syllable = 0xac00, first_lead = 0x1100, first_vowel = 0x1161,
                  before_tails = 0x11a7;
constexpr int leads = 19, vowels = 21, tails = 28;

template <class Number>
Number number_of(std::string_view text, int base) {
  Number value{};
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

struct Tables {
  std::unordered_map<wchar_t, std::wstring> decomposed;  // of one step
  std::map<std::pair<wchar_t, wchar_t>, wchar_t> pairs;
  std::unordered_map<wchar_t, int> classes;

  Tables() {
    for_each_entry(canonical_decompositions, [&](std::string_view name, std::string_view value) {
      const wchar_t c = characters_of(name).front();
      const std::wstring parts = characters_of(value);
      decomposed.emplace(c, parts);
      if (!value.ends_with('!') && parts.size() == 2) pairs[{parts[0], parts[1]}] = c;
    });
    for (std::string_view rest = combining_classes; !rest.empty();) {
      const std::size_t end = rest.find(' '), dash = rest.find('-'), colon = rest.find(':');
      const auto last = number_of<std::uint32_t>(rest.substr(dash + 1, colon - dash - 1), 16);
      for (auto c = number_of<std::uint32_t>(rest.substr(0, dash), 16); c <= last; ++c) {
        classes[static_cast<wchar_t>(c)] = number_of<int>(rest.substr(colon + 1), 10);
      }
      rest.remove_prefix(end + 1);
    }
  }
  int combining_class(wchar_t c) const {
    const auto found = classes.find(c);
    return found == classes.end() ? 0 : found->second;
  }
};

const Tables& tables() {
  static const Tables all;
  return all;
}

void append_decomposed(wchar_t c, std::wstring& text) {
  const int syllable = static_cast<int>(c) - first_syllable;
  if (syllable >= 0 && syllable < leads * vowels * tails) {
    text += static_cast<wchar_t>(first_lead + syllable / (vowels * tails));
    text += static_cast<wchar_t>(first_vowel + syllable / tails % vowels);
    if (syllable % tails > 0) text += static_cast<wchar_t>(before_tails + syllable % tails);
    return;
  }
  const auto found = tables().decomposed.find(c);
  if (found == tables().decomposed.end()) {
    text += c;
    return;
  }
  for (const wchar_t part : found->second) append_decomposed(part, text);
}

// The character that two neighbours become; 0: none.
wchar_t composed_pair(wchar_t first, wchar_t second) {
  const int lead = static_cast<int>(first) - first_lead,
            vowel = static_cast<int>(second) - first_vowel,
            syllable = static_cast<int>(first) - first_syllable,
            tail = static_cast<int>(second) - before_tails;
  if (lead >= 0 && lead < leads && vowel >= 0 && vowel < vowels) {
    return static_cast<wchar_t>(first_syllable + (lead * vowels + vowel) * tails);
  }
  if (syllable >= 0 && syllable < leads * vowels * tails && syllable % tails == 0 && tail > 0 &&
      tail < tails) {
    return static_cast<wchar_t>(first + tail);
  }
  const auto found = tables().pairs.find({first, second});
  return found == tables().pairs.end() ? L'\0' : found->second;
}

}  // namespace

void for_each_entry(std::string_view table,
                    const std::function<void(std::string_view, std::string_view)>& use) {
  while (!table.empty()) {
    const std::size_t equal = table.find('='), end = table.find(' ');
    use(table.substr(0, equal), table.substr(equal + 1, end - equal - 1));
    table.remove_prefix(end + 1);
  }
}

std::wstring characters_of(std::string_view codes) {
  std::wstring text;
  while (true) {
    text += static_cast<wchar_t>(number_of<std::uint32_t>(codes, 16));
    const std::size_t dot = codes.find('.');
    if (dot == codes.npos) return text;
    codes.remove_prefix(dot + 1);
  }
}

std::wstring composed(std::wstring_view text) {
  std::wstring parts;
  for (const wchar_t c : text) append_decomposed(c, parts);
  const auto of = [](wchar_t c) { return tables().combining_class(c); };
  for (auto begin = parts.begin(); begin != parts.end();) {  // marks in the order of their classes
    if (of(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, parts.end(), [&](wchar_t c) { return of(c) == 0; });
    std::stable_sort(begin, end, [&](wchar_t a, wchar_t b) { return of(a) < of(b); });
    begin = end;
  }
  std::wstring result;
  std::size_t starter = result.npos;  // the last character of class 0
  int last = 0;                       // class of what was kept after it
  for (const wchar_t c : parts) {
    const int own = of(c);
    const bool next = starter != result.npos && starter + 1 == result.size();
    if (starter != result.npos && (next || (last < own && last != 0))) {
      if (const wchar_t both = composed_pair(result[starter], c)) {
        result[starter] = both;
        continue;
      }
    }
    if (own == 0) starter = result.size();
    result += c;
    last = own;
  }
  return result;
}

}  // namespace reelmesh
