#include "text/graphemes.hpp"

#include <algorithm>
#include <utility>

#include "text/unicode.hpp"

namespace reelmesh {
namespace {

using Ranges = std::pair<wchar_t, wchar_t>[];

template <std::size_t n>
bool is_in(const std::pair<wchar_t, wchar_t> (&ranges)[n], wchar_t c) {
  return std::ranges::any_of(
      ranges, [&](const auto& range) { return c >= range.first && c <= range.second; });
}

/// Grapheme_Cluster_Break = Extend, ZWJ or SpacingMark.
bool goes_on(wchar_t c) {
  // What the categories Mn, Mc and Me lack, and marks that begin a cluster.
  constexpr Ranges more = {{0x200c, 0x200d}, {0xe33, 0xe33},     {0xeb3, 0xeb3},
                           {0xff9e, 0xff9f}, {0x1f3fb, 0x1f3ff}, {0xe0020, 0xe007f}};
  constexpr Ranges not_these = {
      {0x102b, 0x102c}, {0x1038, 0x1038}, {0x1062, 0x1064},  {0x1067, 0x106d}, {0x1083, 0x1083},
      {0x1087, 0x108c}, {0x108f, 0x108f}, {0x109a, 0x109c},  {0x1a61, 0x1a61}, {0x1a63, 0x1a64},
      {0xaa7b, 0xaa7b}, {0xaa7d, 0xaa7d}, {0x11720, 0x11721}};
  return (is_combining(c) && !is_in(not_these, c)) || is_in(more, c);
}

/// Grapheme_Cluster_Break = Prepend.
bool comes_before(wchar_t c) {
  constexpr Ranges prepended = {{0x600, 0x605},     {0x6dd, 0x6dd},     {0x70f, 0x70f},
                                {0x890, 0x891},     {0x8e2, 0x8e2},     {0xd4e, 0xd4e},
                                {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x111c2, 0x111c3},
                                {0x1193f, 0x1193f}, {0x11941, 0x11941}, {0x11a3a, 0x11a3a},
                                {0x11a84, 0x11a89}, {0x11d46, 0x11d46}, {0x11f02, 0x11f02}};
  return is_in(prepended, c);
}

/// Grapheme_Cluster_Break = Control, CR or LF.
bool stands_alone(wchar_t c) {
  constexpr Ranges controls = {{0, 0x1f},          {0x7f, 0x9f},       {0xad, 0xad},
                               {0x61c, 0x61c},     {0x180e, 0x180e},   {0x200b, 0x200b},
                               {0x200e, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},
                               {0xfeff, 0xfeff},   {0xfff0, 0xfffb},   {0x13430, 0x1343f},
                               {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}};
  return is_in(controls, c) && !goes_on(c);
}

}  // namespace

std::size_t grapheme_length(std::wstring_view text) {
  if (text.starts_with(L"\r\n")) return 2;
  if (stands_alone(text[0])) return 1;
  std::size_t length = 0;
  while (length < text.size() && comes_before(text[length])) ++length;
  if (length < text.size() && !stands_alone(text[length])) ++length;
  while (length < text.size() && goes_on(text[length])) ++length;
  return length;
}

}  // namespace reelmesh
