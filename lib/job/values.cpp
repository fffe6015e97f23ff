#include "job/values.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/error.hpp"
#include "base/number.hpp"
#include "base/units.hpp"
#include "base/utf8.hpp"

namespace reelmesh {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& option,
                         const std::string& expected) {
  const bool comment = text.find(" #") != std::string_view::npos;
  fail(Status::usage, "{}: found '{}', expected {}{}", option, text, expected,
       comment ? " (a comment needs a line of its own)" : "");
}

template <class Number>
std::string limits_in_words(Number min, Number max, Limit lower) {
  return lower == Limit::excluded ? fmt::format("above {}, at most {}", min, max)
                                  : fmt::format("{} to {}", min, max);
}

template <class Number>
Number parse_within(std::string_view text, const std::string& option, Number min, Number max,
                    Limit lower) {
  const auto value = read_number<Number>(text);
  const bool too_low = value && (lower == Limit::excluded ? *value <= min : *value < min);
  if (!value || too_low || !(*value <= max)) {  // NaN is not at most anything
    refuse(text, option,
           fmt::format("a {} {}{}", std::is_floating_point_v<Number> ? "number" : "whole number",
                       lower == Limit::excluded ? "" : "from ", limits_in_words(min, max, lower)));
  }
  return *value;
}

}  // namespace

std::int64_t parse_integer(std::string_view text, const std::string& option, std::int64_t min,
                           std::int64_t max) {
  return parse_within(text, option, min, max, Limit::included);
}

double parse_number(std::string_view text, const std::string& option, double min, double max) {
  return parse_within(text, option, min, max, Limit::included);
}

double parse_wait(std::string_view text, const std::string& option) {
  const double seconds = parse_seconds(text, option);
  constexpr double max_seconds = 1e8;  // three years
  require(seconds > 0 && seconds <= max_seconds, Status::usage,
          "{}: found '{}', expected a time above 0 and up to 1e8 s, such as 10min", option, text);
  return seconds;
}

bool parse_switch(std::string_view text, const std::string& option) {
  if (text == "yes" || text == "true" || text == "on") return true;
  if (text == "no" || text == "false" || text == "off") return false;
  refuse(text, option, "yes or no");
}

std::size_t parse_choice(std::string_view text, const std::string& option,
                         std::span<const std::string_view> choices) {
  const auto found = std::find(choices.begin(), choices.end(), text);
  if (found == choices.end()) {
    refuse(text, option, fmt::format("one of {}", fmt::join(choices, ", ")));
  }
  return static_cast<std::size_t>(found - choices.begin());
}

DType parse_dtype(std::string_view text, const std::string& option) {
  constexpr std::array<std::string_view, 3> names{"float32", "bfloat16", "float16"};
  constexpr std::array types{DType::float32, DType::bfloat16, DType::float16};
  constexpr auto others =
      std::to_array<std::pair<std::string_view, DType>>({{"bf16", DType::bfloat16},
                                                         {"fp16", DType::float16},
                                                         {"half", DType::float16},
                                                         {"fp32", DType::float32},
                                                         {"float", DType::float32}});
  const std::string_view prefix = "torch.";
  const std::string_view plain = text.starts_with(prefix) ? text.substr(prefix.size()) : text;
  const auto* other = std::ranges::find(others, plain, &decltype(others)::value_type::first);
  if (other != others.end()) {
    refuse(text, option, fmt::format("{}, the name of this type here", name_of(other->second)));
  }
  return types[parse_choice(text, option, names)];
}

std::optional<int> parse_ranks(std::string_view text, const std::string& option) {
  if (text == "auto") return std::nullopt;
  constexpr std::int64_t max = 65536;
  const auto value = read_number<std::int64_t>(text);
  if (!value || *value < 1 || *value > max) {
    refuse(text, option, fmt::format("auto or a whole number from 1 to {}", max));
  }
  return static_cast<int>(*value);
}

std::vector<int> parse_clips(std::string_view text, const std::string& option, int count) {
  std::vector<int> clips;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const std::size_t dash = std::min(part.find('-'), part.size());
    const auto first = read_number<int>(part.substr(0, dash));
    const auto last = dash == part.size() ? first : read_number<int>(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *first > *last || *last >= count) {
      refuse(text, option,
             fmt::format("numbers of the job's clips, 0 to {}, such as 3,7,12-15", count - 1));
    }
    for (int clip = *first; clip <= *last; ++clip) clips.push_back(clip);
    begin = end + 1;
  }
  std::ranges::sort(clips);
  const auto repeated = std::ranges::unique(clips);
  clips.erase(repeated.begin(), repeated.end());
  return clips;
}

LoraFile parse_lora(std::string_view text, const std::string& option) {
  constexpr double max_scale = 1000;
  require_text(text, option);
  LoraFile lora;
  std::string_view path = text;
  const std::size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    const std::string_view before = text.substr(0, colon), after = text.substr(colon + 1);
    if (before.ends_with(".safetensors") || read_number<double>(after)) {
      lora.scale = parse_number(after, option, -max_scale, max_scale);
      path = before;
    }
  }
  require(!path.empty(), Status::usage, "{}: found '{}', expected FILE or FILE:SCALE", option,
          text);
  lora.path = parse_path(path, option);
  return lora;
}

template <class Value>
std::string setting_limits(const ClipSetting<Value>& setting) {
  if constexpr (std::is_arithmetic_v<Value>) {
    const Permitted<Value>& limits = setting.permitted;
    return limits_in_words(limits.min, limits.max, limits.lower_limit);
  } else {
    return Value::expected;
  }
}

template <class Value>
Value parse_setting(const ClipSetting<Value>& setting, std::string_view text,
                    const std::string& option) {
  if constexpr (std::is_arithmetic_v<Value>) {
    const Permitted<Value>& limits = setting.permitted;
    return parse_within(text, option, limits.min, limits.max, limits.lower_limit);
  } else {
    const std::optional<Value> value = Value::read(text);
    if (!value) refuse(text, option, Value::expected);
    return *value;
  }
}

#define REELMESH_SETTING_OF(Value)                                                               \
  template Value parse_setting(const ClipSetting<Value>&, std::string_view, const std::string&); \
  template std::string setting_limits(const ClipSetting<Value>&);
REELMESH_SETTING_OF(int)
REELMESH_SETTING_OF(std::int64_t)
REELMESH_SETTING_OF(std::uint64_t)
REELMESH_SETTING_OF(double)
REELMESH_SETTING_OF(NoiseLevels)
REELMESH_SETTING_OF(StepCache)
REELMESH_SETTING_OF(CacheCoefficients)
#undef REELMESH_SETTING_OF

std::filesystem::path parse_path(std::string_view text, const std::string& option) {
  require(!text.empty(), Status::usage, "{}: found an empty value, expected a path", option);
  require_text(text, option);
  if (!text.starts_with('~')) return text;
  const std::size_t slash = text.find('/');
  const bool is_home = text == "~" || slash == 1;
  require(is_home || slash == text.npos, Status::usage,
          "{}: found '{}', expected a path: of the folders of users only ~/ is known", option,
          text);
  if (!is_home) return text;  // a file whose name begins so
  const char* const home = std::getenv("HOME");
  require(home != nullptr && *home != '\0', Status::usage,
          "{}: found '{}', expected a path without ~, as HOME is not set", option, text);
  return std::filesystem::path(home) / text.substr(std::min(std::size_t{2}, text.size()));
}

void require_text(std::string_view text, const std::string& option) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i));
    require(length > 0 && text[i] != '\0', Status::data,
            "{}: found byte {} (0x{:02x}), expected UTF-8 text", option, i,
            static_cast<unsigned char>(text[i]));
    i += length;
  }
}

void require_prompt(std::string_view text, const std::string& option) {
  constexpr std::size_t max_bytes = 65536;
  require(text.size() <= max_bytes, Status::usage,
          "{}: found a prompt of {} bytes, expected at most {}", option, text.size(), max_bytes);
  require_text(text, option);
}

}  // namespace reelmesh
