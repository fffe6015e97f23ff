#pragma once
// Numbers from text.
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace reelmesh {

/// `text` as a number; nullopt if any part of it is not a number, or if it is out of range. As
/// std::from_chars: ignores the locale and accepts no leading '+' or space, and no minus for
/// unsigned types; "inf" and "nan" are floating-point numbers.
template <class Number>
std::optional<Number> read_number(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace reelmesh
