#include "base/units.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/number.hpp"

namespace reelmesh {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

double parse_with_units(std::string_view text, std::string_view option, const Unit* units,
                        std::size_t count, std::string_view expected) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (error == std::errc() && std::isfinite(value) && value >= 0) {
    for (std::size_t i = 0; i < count; ++i) {
      if (units[i].name == unit) return value * units[i].factor;
    }
  }
  fail(Status::usage, "{}: found '{}', expected {}", option, text, expected);
}

}  // namespace

std::int64_t parse_bytes(std::string_view text, std::string_view option) {
  static constexpr std::array<Unit, 10> units{{{"", 1},
                                               {"B", 1},
                                               {"kB", 1e3},
                                               {"MB", 1e6},
                                               {"GB", 1e9},
                                               {"TB", 1e12},
                                               {"KiB", 1024.0},
                                               {"MiB", 1024.0 * 1024},
                                               {"GiB", 1024.0 * 1024 * 1024},
                                               {"TiB", 1024.0 * 1024 * 1024 * 1024}}};
  const double bytes =
      parse_with_units(text, option, units.data(), units.size(), "a size such as 16GiB");
  require(bytes < 9.0e18, Status::usage, "{}: found '{}', expected less than 8 EiB", option, text);
  return to_integer(bytes);
}

namespace {

// "1:30:00", "30:00", "2-12", "2-12:30" or "2-12:30:00" as Slurm writes times; otherwise nothing.
std::optional<double> clock_seconds(std::string_view text) {
  const std::size_t dash = text.find('-');
  const bool days = dash != text.npos;
  std::vector<std::int64_t> numbers;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(days && begin == 0 ? '-' : ':', begin), text.size());
    const std::string_view digits = text.substr(begin, end - begin);
    constexpr std::size_t max_digits = 9;
    if (digits.empty() || digits.size() > max_digits ||
        digits.find_first_not_of("0123456789") != digits.npos) {
      return std::nullopt;
    }
    std::int64_t number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    numbers.push_back(number);
    begin = end + 1;
  }
  if (numbers.size() < 2 || numbers.size() > (days ? 4U : 3U)) return std::nullopt;
  static constexpr std::array<double, 4> units{86400, 3600, 60, 1};
  const std::size_t first = days ? 0 : units.size() - numbers.size();
  static constexpr std::array<std::int64_t, 4> limits{0, 24, 60, 60};
  double seconds = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && numbers[i] >= limits[first + i]) return std::nullopt;
    seconds += static_cast<double>(numbers[i]) * units[first + i];
  }
  return seconds;
}

}  // namespace

double parse_seconds(std::string_view text, std::string_view option) {
  if (const auto seconds = clock_seconds(text)) return *seconds;
  static constexpr std::array<Unit, 5> units{
      {{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}, {"ms", 1e-3}}};
  return parse_with_units(text, option, units.data(), units.size(),
                          "a time such as 90s, 10min or 1:30:00");
}

std::string format_bytes(double bytes) {
  static constexpr std::array<std::string_view, 6> names{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t i = 0;
  while (bytes >= 1024 && i + 1 < names.size()) {
    bytes /= 1024;
    ++i;
  }
  return i == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, names[i]);
}

std::string format_seconds(double seconds) {
  if (seconds < 60) return fmt::format("{:.2f} s", seconds);
  constexpr double very_long = 1e13;  // seconds
  if (seconds >= very_long) return fmt::format("{:.3g} h", seconds / 3600);
  const std::int64_t whole = to_integer(seconds + 0.5);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string format_short_seconds(double seconds) {
  const bool is_short = seconds > 0 && seconds < 0.1;
  return is_short ? fmt::format("{:.3g} ms", 1e3 * seconds) : format_seconds(seconds);
}

std::int64_t checked_product(std::int64_t a, std::int64_t b, std::string_view what) {
  std::int64_t product = 0;
  require(a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, &product), Status::data,
          "{}: {} x {} is not a possible size", what, a, b);
  return product;
}

}  // namespace reelmesh
