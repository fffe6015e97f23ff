#include "text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace reelmesh {
namespace {

constexpr wchar_t replacement = 0xfffd;

bool is_in(utf8proc_category_t category, std::initializer_list<utf8proc_category_t> categories) {
  return std::ranges::find(categories, category) != categories.end();
}

bool is_letter(utf8proc_category_t category) {
  return is_in(category, {UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LT,
                          UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_LO});
}

/// The first byte of a multi-byte character: its payload bits, the number of bytes that follow, and
/// the range of the next byte (the others are 80 to BF). follow is 0 for an invalid first byte.
struct Lead {
  std::uint32_t bits = 0;
  int follow = 0;
  std::uint8_t min = 0x80, max = 0xbf;
};

Lead read_lead(std::uint8_t byte) {
  if (byte >= 0xc2 && byte <= 0xdf) return {byte & 0x1fU, 1};
  if (byte >= 0xe0 && byte <= 0xef) {
    // Excludes overlong encodings and surrogates.
    return {byte & 0x0fU, 2, static_cast<std::uint8_t>(byte == 0xe0 ? 0xa0 : 0x80),
            static_cast<std::uint8_t>(byte == 0xed ? 0x9f : 0xbf)};
  }
  if (byte >= 0xf0 && byte <= 0xf4) {
    return {byte & 0x07U, 3, static_cast<std::uint8_t>(byte == 0xf0 ? 0x90 : 0x80),
            static_cast<std::uint8_t>(byte == 0xf4 ? 0x8f : 0xbf)};
  }
  return {};
}

bool is_cased(wchar_t c) {
  return utf8proc_isupper(c) != 0 || utf8proc_islower(c) != 0 ||
         utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

}  // namespace

std::wstring decode_utf8(std::string_view bytes) {
  std::wstring text;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto byte = static_cast<std::uint8_t>(bytes[at++]);
    if (byte < 0x80) {
      text += static_cast<wchar_t>(byte);
      continue;
    }
    Lead lead = read_lead(byte);
    bool good = lead.follow > 0;
    for (int i = 0; i < lead.follow && good; ++i) {
      const auto next = at < bytes.size() ? static_cast<std::uint8_t>(bytes[at]) : std::uint8_t{0};
      good = next >= lead.min && next <= lead.max;
      if (!good) break;
      lead.bits = lead.bits << 6 | (next & 0x3fU);
      lead.min = 0x80;
      lead.max = 0xbf;
      ++at;
    }
    text += good ? static_cast<wchar_t>(lead.bits) : replacement;
  }
  return text;
}

std::string encode_utf8(std::wstring_view text) {
  std::string bytes;
  for (const wchar_t c : text) {
    const auto code = static_cast<std::uint32_t>(c);
    const auto tail = [&](int shift) {
      bytes += static_cast<char>(0x80U | (code >> shift & 0x3fU));
    };
    if (code < 0x80) {
      bytes += static_cast<char>(code);
    } else if (code < 0x800) {
      bytes += static_cast<char>(0xc0U | code >> 6);
      tail(0);
    } else if (code < 0x10000) {
      bytes += static_cast<char>(0xe0U | code >> 12);
      tail(6);
      tail(0);
    } else {
      bytes += static_cast<char>(0xf0U | code >> 18);
      tail(12);
      tail(6);
      tail(0);
    }
  }
  return bytes;
}

bool is_space(wchar_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_white_space(wchar_t c) { return is_space(c) && !(c >= 0x1c && c <= 0x1f); }

bool is_combining(wchar_t c) {
  return is_in(utf8proc_category(c),
               {UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_ME});
}

bool is_word_character(wchar_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  const bool joins = c == 0x200c || c == 0x200d;
  const bool in_circle = c >= 0x24b6 && c <= 0x24e9;
  const bool in_square = (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
                         (c >= 0x1f170 && c <= 0x1f189);
  return is_letter(category) || is_combining(c) ||
         is_in(category, {UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_PC}) ||
         joins || in_circle || in_square;
}

bool is_alphanumeric(wchar_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  return is_letter(category) ||
         is_in(category, {UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_NO});
}

std::wstring lower_case(std::wstring_view text) {
  constexpr wchar_t dotted_i = 0x130, dot_above = 0x307, sigma = 0x3a3, final_sigma = 0x3c2;
  std::wstring lower;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const wchar_t c = text[i];
    const bool ends_word =
        i > 0 && is_cased(text[i - 1]) && (i + 1 == text.size() || !is_cased(text[i + 1]));
    if (c == dotted_i) {
      lower += {L'i', dot_above};
    } else if (c == sigma && ends_word) {
      lower += final_sigma;
    } else {
      lower += static_cast<wchar_t>(utf8proc_tolower(c));
    }
  }
  return lower;
}

}  // namespace reelmesh
