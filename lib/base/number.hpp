#pragma once
// Numbers from text, and whole numbers from others.
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
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

/// `value` without its fraction. If it is beyond the range of std::int64_t, the nearest number
/// within; 0 if it is not a number. A cast would be undefined for these.
inline std::int64_t to_integer(double value) {
  using Limits = std::numeric_limits<std::int64_t>;
  constexpr double beyond = 0x1p63;
  if (std::isnan(value)) return 0;
  if (value >= beyond) return Limits::max();
  return value < -beyond ? Limits::min() : static_cast<std::int64_t>(value);
}

}  // namespace reelmesh
