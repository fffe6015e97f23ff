#include "text/clean_prompt.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/error.hpp"
#include "text/compose.hpp"
#include "text/html_names.hpp"
#include "text/unicode.hpp"

namespace reelmesh {
namespace {

constexpr std::size_t max_prompt_characters = 20'000;

// U+0080 to U+009F as Windows-1252; 0: not assigned.
constexpr std::array<wchar_t, 32> windows_1252{
    0x20ac, 0,      0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,  0x2030, 0x160,
    0x2039, 0x152,  0,      0x17d,  0,      0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0,      0x17e,  0x178};

bool is_control_1(wchar_t c) { return c >= 0x80 && c <= 0x9f; }

wchar_t from_windows_1252(wchar_t c) {
  const wchar_t found = windows_1252[static_cast<std::size_t>(c - 0x80)];
  return found == 0 ? c : found;
}

using Replacements = std::unordered_map<wchar_t, std::wstring>;

// Ligatures, width forms, C1 characters and quotes, each of which becomes other characters.
const Replacements& replacements() {
  static const Replacements all = [] {
    Replacements to{{0x132, L"IJ"},       {0x133, L"ij"},  {0x149, L"'n"},      {0x1f1, L"DZ"},
                    {0x1f2, L"Dz"},       {0x1f3, L"dz"},  {0x1c4, L"D\u017d"}, {0x1c5, L"D\u017e"},
                    {0x1c6, L"d\u017e"},  {0x1c7, L"LJ"},  {0x1c8, L"Lj"},      {0x1c9, L"lj"},
                    {0x1ca, L"NJ"},       {0x1cb, L"Nj"},  {0x1cc, L"nj"},      {0xfb00, L"ff"},
                    {0xfb01, L"fi"},      {0xfb02, L"fl"}, {0xfb03, L"ffi"},    {0xfb04, L"ffl"},
                    {0xfb05, L"\u017ft"}, {0xfb06, L"st"}};
    const auto narrow = [&](wchar_t c) {
      const std::wstring plain = composed_without_variants({&c, 1});
      if (plain.front() != c) to[c] = plain;
    };
    narrow(0x3000);
    for (wchar_t c = 0xff01; c < 0xfff0; ++c) narrow(c);  // full-width and half-width forms
    for (wchar_t c = 0x201c; c <= 0x201f; ++c) to[c] = L"\"";
    for (const wchar_t c : {0x2bc, 0x2018, 0x2019, 0x201a, 0x201b}) to[c] = L"'";
    for (const wchar_t c : {L'\r', wchar_t{0x2028}, wchar_t{0x2029}}) to[c] = L"\n";
    for (wchar_t c = 0x80; c <= 0x9f; ++c) {
      const wchar_t as = from_windows_1252(c);
      const auto further = to.find(as);
      if (as != c) to[c] = further == to.end() ? std::wstring(1, as) : further->second;
    }
    return to;
  }();
  return all;
}

bool is_removed(wchar_t c) {
  return c <= 8 || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f ||
         (c >= 0x206a && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffc);
}

using Names = std::unordered_map<std::string_view, std::wstring>;

// "2242.338" → U+2242 U+0338.
std::wstring characters_of(std::string_view codes) {
  std::wstring text;
  while (!codes.empty()) {
    const std::string_view code = codes.substr(0, codes.find('.'));
    std::uint32_t c = 0;
    std::from_chars(code.data(), code.data() + code.size(), c, 16);
    text += static_cast<wchar_t>(c);
    codes.remove_prefix(std::min(code.size() + 1, codes.size()));
  }
  return text;
}

// A table of html_names.hpp.
Names read_names(std::string_view table) {
  Names names;
  while (!table.empty()) {
    const std::size_t equal = table.find('='), end = table.find(' ');
    names.emplace(table.substr(0, equal), characters_of(table.substr(equal + 1, end - equal - 1)));
    table.remove_prefix(end + 1);
  }
  return names;
}

const std::wstring* find_in(const Names& names, std::wstring_view name) {
  std::string ascii;
  for (const wchar_t c : name) {
    if (c > 0x7f) return nullptr;
    ascii += static_cast<char>(c);
  }
  const auto found = names.find(ascii);
  return found == names.end() ? nullptr : &found->second;
}

const Names& known_names() {
  static const Names names = read_names(html_names);
  return names;
}

bool is_digit(wchar_t c) { return c >= L'0' && c <= L'9'; }
bool is_hexadecimal(wchar_t c) {
  return is_digit(c) || (c >= L'a' && c <= L'f') || (c >= L'A' && c <= L'F');
}
bool is_ascii_alphanumeric(wchar_t c) {
  return is_digit(c) || (c >= L'a' && c <= L'z') || (c >= L'A' && c <= L'Z');
}

// What a numeric reference stands for: html.unescape of Python, by the rules of HTML 5.
std::wstring numbered(std::uint32_t code) {
  constexpr std::uint32_t last = 0x10ffff;
  if (code == 0 || code > last || (code >= 0xd800 && code <= 0xdfff)) return L"\ufffd";
  const auto c = static_cast<wchar_t>(code);
  if (is_control_1(c)) return std::wstring(1, from_windows_1252(c));
  const bool permitted = c == L'\t' || c == L'\n' || c == L'\f' || c == L'\r';
  if ((code < 0x20 && !permitted) || code == 0x7f || (code >= 0xfdd0 && code <= 0xfdef) ||
      (code & 0xfffeU) == 0xfffeU) {
    return L"";
  }
  return std::wstring(1, c);
}

struct Reference {
  std::wstring text;
  std::size_t length;  // of what it replaces
};

// "&#123;", "&#x1f;", with or without the semicolon, at the beginning of text.
std::optional<Reference> numeric_reference(std::wstring_view text) {
  if (text.size() < 3 || text[1] != L'#') return std::nullopt;
  const bool hexadecimal = text[2] == L'x' || text[2] == L'X';
  const std::size_t first = hexadecimal ? 3 : 2;
  std::uint32_t code = 0;
  std::size_t at = first;
  while (at < text.size() && (hexadecimal ? is_hexadecimal(text[at]) : is_digit(text[at]))) {
    const wchar_t c = text[at++];
    const auto digit = static_cast<std::uint32_t>(
        is_digit(c) ? c - L'0' : (c | 0x20) - L'a' + 10);  // | 0x20: in lower case
    code = std::min<std::uint32_t>(code * (hexadecimal ? 16 : 10) + digit, 0x110000);
  }
  if (at == first) return std::nullopt;
  if (at < text.size() && text[at] == L';') ++at;
  return Reference{numbered(code), at};
}

// "&amp;", or a name that HTML permits without a semicolon and what follows it.
std::optional<Reference> named_reference(std::wstring_view text) {
  constexpr std::size_t max_length = 32;
  std::size_t end = 1;
  const std::wstring_view ends = L"\t\n\f <&#;";
  while (end < text.size() && end <= max_length && ends.find(text[end]) == ends.npos) ++end;
  if (end == 1) return std::nullopt;
  if (end < text.size() && text[end] == L';') ++end;
  const std::wstring_view name = text.substr(1, end - 1);
  for (std::size_t length = name.size(); length > 1; --length) {
    const std::wstring* found = find_in(known_names(), name.substr(0, length));
    if (found != nullptr) return Reference{*found, length + 1};
  }
  return std::nullopt;
}

template <class Find>
std::wstring replaced(std::wstring_view text, const Find& find) {
  std::wstring result;
  while (!text.empty()) {
    std::optional<Reference> found;
    if (text.front() == L'&') found = find(text);
    if (found) {
      result += found->text;
      text.remove_prefix(found->length);
    } else {
      result += text.front();
      text.remove_prefix(1);
    }
  }
  return result;
}

// html.unescape of Python.
std::wstring unescaped(std::wstring_view text) {
  return replaced(text, [](std::wstring_view from) {
    auto found = numeric_reference(from);
    return found ? found : named_reference(from);
  });
}

// ftfy.fixes.unescape_html: only names with a semicolon, and some in capitals.
std::wstring without_entities(std::wstring_view text) {
  return replaced(text, [](std::wstring_view from) -> std::optional<Reference> {
    constexpr std::size_t max_length = 24;
    static const Names capitals = read_names(upper_case_html_names);
    const std::size_t first = from.size() > 1 && from[1] == L'#' ? 2 : 1;
    std::size_t end = first;
    while (end < from.size() && end - first < max_length && is_ascii_alphanumeric(from[end])) ++end;
    if (end == first || end == from.size() || from[end] != L';') return std::nullopt;
    ++end;
    if (first == 2) return Reference{unescaped(from.substr(0, end)), end};
    const std::wstring_view name = from.substr(1, end - 1);
    const std::wstring* found = find_in(known_names(), name);
    if (found == nullptr) found = find_in(capitals, name);
    if (found == nullptr) return std::nullopt;
    return Reference{*found, end};
  });
}

// Without the sequences that colour a terminal: ESC [ 0 ; 1 m.
std::wstring without_terminal_escapes(std::wstring_view text) {
  std::wstring result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == 0x1b && at + 1 < text.size() && text[at + 1] == L'[') {
      std::size_t end = at + 2;
      while (end < text.size() && (is_digit(text[end]) || text[end] == L';')) ++end;
      if (end < text.size() && is_ascii_alphanumeric(text[end])) {
        at = end;
        continue;
      }
    }
    result += text[at];
  }
  return result;
}

std::wstring fixed_once(std::wstring_view line, bool entities) {
  std::wstring text;
  const std::wstring plain = entities ? without_entities(line) : std::wstring(line);
  for (std::size_t at = 0; at < plain.size(); ++at) {
    const bool pair = plain[at] == L'\r' && at + 1 < plain.size() && plain[at + 1] == L'\n';
    if (pair) continue;
    const auto found = replacements().find(plain[at]);
    if (found == replacements().end()) {
      text += plain[at];
    } else {
      text += found->second;
    }
  }
  text = without_terminal_escapes(text);
  std::erase_if(text, is_removed);
  return composed(text);
}

// ftfy.fix_text: each line until nothing changes.
std::wstring fixed(std::wstring_view text) {
  std::wstring result;
  bool entities = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(L'\n'), text.size() - 1) + 1;
    std::wstring line(text.substr(0, end));
    text.remove_prefix(end);
    if (line.find(L'<') != line.npos) entities = false;  // of HTML, in which they belong
    while (true) {
      std::wstring next = fixed_once(line, entities);
      if (next == line) break;
      line = std::move(next);
    }
    result += line;
  }
  return result;
}

std::wstring with_single_spaces(std::wstring_view text) {
  std::wstring result;
  bool space = false;
  for (const wchar_t c : text) {
    if (is_space(c)) {
      space = !result.empty();
      continue;
    }
    if (space) result += L' ';
    space = false;
    result += c;
  }
  return result;
}

std::wstring suspect_part(std::wstring_view text) {
  constexpr std::size_t around = 12;
  for (std::size_t at = 0; at + 1 < text.size(); ++at) {
    const wchar_t first = text[at], second = text[at + 1];
    const bool pair = (first == 0xc2 || first == 0xc3) && second >= 0x80 && second <= 0xbf;
    const bool quote = first == 0xe2 && (second == 0x20ac || second == 0x80);
    if (!pair && !quote) continue;
    const std::size_t begin = at < around ? 0 : at - around;
    return std::wstring(text.substr(begin, 2 * around));
  }
  return {};
}

}  // namespace

CleanPrompt clean_prompt(std::string_view prompt) {
  const std::wstring text = decode_utf8(prompt);
  require(text.size() <= max_prompt_characters, Status::usage,
          "found a prompt of {} characters, expected at most {}", text.size(),
          max_prompt_characters);
  return {encode_utf8(with_single_spaces(unescaped(unescaped(fixed(text))))),
          encode_utf8(suspect_part(text))};
}

}  // namespace reelmesh
