#include "text/clean.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <locale>
#include <optional>
#include <regex>
#include <vector>

#include "base/error.hpp"
#include "text/unicode.hpp"

namespace reelmesh {
namespace {

constexpr std::size_t max_characters = 4000;  // some patterns take quadratic time

/// Character classes as in Python's re module: \w and \s include all scripts.
class PythonTraits {
 public:
  using char_type = wchar_t;
  using string_type = std::wstring;
  using locale_type = std::locale;
  using char_class_type = unsigned;

  static std::size_t length(const wchar_t* text) { return std::char_traits<wchar_t>::length(text); }
  wchar_t translate(wchar_t c) const { return c; }
  wchar_t translate_nocase(wchar_t c) const { return c; }
  template <class I>
  std::wstring transform(I first, I last) const {
    return {first, last};
  }
  template <class I>
  std::wstring transform_primary(I first, I last) const {
    return {first, last};
  }
  template <class I>
  std::wstring lookup_collatename(I, I) const {
    return {};
  }
  /// "d", "s" or "w", in upper or lower case.
  template <class I>
  unsigned lookup_classname(I first, I last, bool = false) const {
    if (last - first != 1) return 0;
    switch (*first) {
      case L'd':
      case L'D':
        return digit;
      case L's':
      case L'S':
        return space;
      case L'w':
      case L'W':
        return word;
      default:
        return 0;
    }
  }
  bool isctype(wchar_t c, unsigned classes) const {
    return ((classes & digit) != 0 && c >= L'0' && c <= L'9') ||
           ((classes & space) != 0 && is_space(c)) ||
           ((classes & word) != 0 && (c == L'_' || is_alphanumeric(c)));
  }
  int value(wchar_t c, int radix) const {
    const int digit_value = c >= L'0' && c <= L'9'   ? static_cast<int>(c - L'0')
                            : c >= L'a' && c <= L'f' ? static_cast<int>(c - L'a') + 10
                                                     : radix;
    return digit_value < radix ? digit_value : -1;
  }
  std::locale imbue(const std::locale&) { return {}; }
  std::locale getloc() const { return {}; }

 private:
  static constexpr unsigned digit = 1, space = 2, word = 4;
};

// libstdc++'s breadth-first matcher, an extension of the standard: the default one recurses for
// every character, so that long captions would need megabytes of stack.
constexpr auto syntax = std::regex_constants::ECMAScript | std::regex_constants::__polynomial;

struct Rule {
  Rule(const wchar_t* what, const wchar_t* with) : pattern(what, syntax), replacement(with) {}
  std::basic_regex<wchar_t, PythonTraits> pattern;
  std::wstring replacement;
};

// Applied to text in lower case.
const std::vector<Rule>& first_rules() {
  static const std::vector<Rule> rules{
      {L"<person>", L"person"},
      // URLs: the beginning of a full one, or a name with a known ending and its path, unless "@"
      // follows. Then those that begin with "www:".
      {LR"(\b(?:https?:(?:/{1,3}|[a-z0-9%])|[a-z0-9.\-]+\.(?:com|co|ru|net|org|edu|gov|it)[\w/\-]*\b/?(?!@)))",
       L""},
      {LR"(\b(?:www:(?:/{1,3}|[a-z0-9%])|[a-z0-9.\-]+\.(?:com|co|ru|net|org|edu|gov|it)[\w/\-]*\b/?(?!@)))",
       L""},
      {LR"(@\w+)", L""},
      // CJK characters and neighbouring blocks of Unicode.
      {L"[\u31c0-\u9fff]+", L""},
      // Dashes and quotes of all kinds.
      {L"[-\u058a\u05be\u1400\u1806\u2010-\u2015\u2e17\u2e1a\u2e3a\u2e3b\u2e40\u301c\u3030\u30a0"
       L"\ufe31\ufe32\ufe58\ufe63\uff0d]+",
       L"-"},
      {L"[`\u00b4\u00ab\u00bb\u201c\u201d\u00a8]", L"\""},
      {L"[\u2018\u2019]", L"'"},
      {L"&quot;?", L""},
      {L"&amp", L""},
      // IP addresses, article ids (at the end), numbers of issues and products.
      {LR"(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})", L" "},
      {LR"(\d:\d\d\s+$)", L""},
      {LR"(\\n)", L" "},
      {LR"(#\d{1,3}\b)", L""},
      {LR"(#\d{5,}\b)", L""},
      {LR"(\b\d{6,}\b)", L""},
  };
  return rules;
}

/// Removes names of files: \S+\.(?:png|jpg|jpeg|bmp|webp|eps|pdf|apk|mp4). In each word, they
/// extend to the last such ending, with which the word must not begin. As a rule it would take
/// quadratic time for long words.
std::wstring without_file_names(const std::wstring& text) {
  constexpr std::array<std::wstring_view, 9> endings{L".png", L".jpg", L".jpeg", L".bmp", L".webp",
                                                     L".eps", L".pdf", L".apk",  L".mp4"};
  std::wstring kept;
  for (auto begin = text.begin(); begin != text.end();) {
    const auto end = std::find_if(begin + 1, text.end(), is_space);
    const std::wstring_view word(begin, end);
    std::size_t removed = 0;
    for (const std::wstring_view ending : endings) {
      const std::size_t at = word.rfind(ending);
      // A space stands alone or before the word.
      const std::size_t first = is_space(word.front()) ? 1 : 0;
      if (at != word.npos && at > first) removed = std::max(removed, at + ending.size());
    }
    if (removed > 0 && is_space(word.front())) kept += word.front();
    kept += word.substr(removed);
    begin = end;
  }
  return kept;
}

// Applied after the names of files have been removed.
const std::vector<Rule>& middle_rules() {
  static const std::vector<Rule> rules{
      {LR"(["']{2,})", L"\""},
      {LR"(\.{2,})", L" "},
      {L"[#\u00ae\u2022\u00a9\u2122&@\u00b7\u00ba\u00bd\u00be\u00bf\u00a1\u00a7~)(\\]\\[}{|\\\\/"
       L"*]+",
       L" "},
      {LR"(\s+\.\s+)", L" "},
  };
  return rules;
}

const Rule& separator() {
  static const Rule rule{L"[-_]", L" "};
  return rule;
}

// Applied after the separators have been replaced.
const std::vector<Rule>& last_rules() {
  static const std::vector<Rule> rules{
      // Codes of letters and digits.
      {LR"(\b[a-z]{1,3}\d{3,15}\b)", L""},
      {LR"(\b[a-z]+\d+[a-z]+\b)", L""},
      {LR"(\b\d+[a-z]+\d+\b)", L""},
      // Phrases of shops and galleries.
      {LR"((?:worldwide\s+)?(?:free\s+)?shipping)", L""},
      {LR"((?:free\s)?download(?:\sfree)?)", L""},
      {LR"(\bclick\b\s(?:for|on)\s\w+)", L""},
      {LR"(\b(?:png|jpg|jpeg|bmp|webp|eps|pdf|apk|mp4)(?:\simages?)?)", L""},
      {LR"(\bpage\s+\d+\b)", L""},
      {LR"(\b\d*[a-z]+\d+[a-z]+\d+[a-z\d]*\b)", L" "},
      // Sizes; the second x is Cyrillic.
      {L"\\b\\d+\\.?\\d*[x\u0445\u00d7]\\d+\\.?\\d*\\b", L""},
      // Spaces around punctuation.
      {LR"(\b\s+:\s+)", L": "},
      {LR"((\D[,./])\b)", L"$1 "},
      {LR"(\s+)", L" "},
      // Both ends.
      {LR"(^["']([\s\S]+)["']$)", L"$1"},
      {LR"(^['_,\-:;])", L""},
      {LR"(['_,\-:+]$)", L""},
      {LR"(^\.\S+$)", L""},
  };
  return rules;
}

void apply(const Rule& rule, std::wstring& text) {
  text = std::regex_replace(text, rule.pattern, rule.replacement);
}

std::wstring stripped(const std::wstring& text) {
  const auto first = std::find_if_not(text.begin(), text.end(), is_space);
  const auto last = std::find_if_not(text.rbegin(), std::make_reverse_iterator(first), is_space);
  return {first, last.base()};
}

/// urllib.parse.unquote_plus: "+" becomes a space, "%41" the byte 0x41; each run of ASCII is then
/// decoded as UTF-8.
std::wstring without_escapes(const std::wstring& text) {
  const auto hex = [&](std::size_t at) -> std::optional<unsigned> {
    const wchar_t c = at < text.size() ? text[at] : L' ';
    if (c >= L'0' && c <= L'9') return static_cast<unsigned>(c - L'0');
    if (c >= L'a' && c <= L'f') return static_cast<unsigned>(c - L'a') + 10;
    if (c >= L'A' && c <= L'F') return static_cast<unsigned>(c - L'A') + 10;
    return std::nullopt;
  };
  std::wstring plain;
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] > 0x7f) {
      plain += decode_utf8(bytes) + text[at];
      bytes.clear();
    } else if (text[at] == L'%' && hex(at + 1) && hex(at + 2)) {
      bytes += static_cast<char>(*hex(at + 1) * 16 + *hex(at + 2));
      at += 2;
    } else {
      bytes += text[at] == L'+' ? ' ' : static_cast<char>(text[at]);
    }
  }
  return plain + decode_utf8(bytes);
}

std::wstring cleaned_once(const std::wstring& caption) {
  std::wstring text = lower_case(stripped(without_escapes(caption)));
  for (const Rule& rule : first_rules()) apply(rule, text);
  text = without_file_names(text);
  for (const Rule& rule : middle_rules()) apply(rule, text);
  // a-long-name or file_name is kept as a word, but a-caption-made-of-such-words is split.
  const auto separators =
      std::count_if(text.begin(), text.end(), [](wchar_t c) { return c == L'-' || c == L'_'; });
  if (separators > 3) apply(separator(), text);
  text = stripped(text);
  for (const Rule& rule : last_rules()) apply(rule, text);
  return stripped(text);
}

}  // namespace

std::string clean_caption(std::string_view caption) {
  const std::wstring text = decode_utf8(caption);
  require(text.size() <= max_characters, Status::usage,
          "found a prompt of {} characters, expected at most {}", text.size(), max_characters);
  return encode_utf8(cleaned_once(cleaned_once(text)));
}

}  // namespace reelmesh
