#include "weights/config.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

/// The value if it is an integer in [min, max], otherwise nullopt.
std::optional<std::int64_t> integer_in(const json& value, std::int64_t min, std::int64_t max) {
  if (!value.is_number_integer()) return std::nullopt;
  // An unsigned value of 2^63 or more would wrap when converted.
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(Config::max_value)) {
    return std::nullopt;
  }
  const auto integer = value.get<std::int64_t>();
  if (integer < min || integer > max) return std::nullopt;
  return integer;
}

std::string range_text(std::int64_t min, std::int64_t max) {
  if (min == Config::min_value && max == Config::max_value) return "";
  if (max == Config::max_value) return fmt::format(" of at least {}", min);
  if (min == Config::min_value) return fmt::format(" of at most {}", max);
  return fmt::format(" from {} to {}", min, max);
}

}  // namespace

Config Config::read(const std::filesystem::path& file) {
  return parse(read_text(file, max_config_bytes), file);
}

Config Config::parse(std::string_view text, const std::filesystem::path& file) {
  Config out;
  out.file_ = file;
  out.root_ = std::make_shared<const json>(parse_json(text, file.string()));
  if (!out.root_->is_object()) {
    fail(Status::data, "{}: found {}, expected a JSON object", file.string(),
         out.root_->type_name());
  }
  return out;
}

const json* Config::find(const std::string& key) const {
  const auto found = root_->find(key);
  return found == root_->end() || found->is_null() ? nullptr : &*found;
}

void Config::fail_type(const std::string& key, const json& found,
                       const std::string& expected) const {
  fail(Status::data, "{}: '{}' is {}, expected {}", file_.string(), key, printable(found.dump()),
       expected);
}

std::vector<std::string> Config::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : root_->items()) keys.push_back(key);
  return keys;
}

bool Config::has(const std::string& key) const { return find(key) != nullptr; }

bool Config::is_string(const std::string& key) const {
  const json* value = find(key);
  return value != nullptr && value->is_string();
}

std::optional<std::int64_t> Config::find_int(const std::string& key, std::int64_t min,
                                             std::int64_t max) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto integer = integer_in(*value, min, max);
  if (!integer) fail_type(key, *value, "an integer" + range_text(min, max));
  return integer;
}

std::int64_t Config::get_int(const std::string& key, std::int64_t fallback, std::int64_t min,
                             std::int64_t max) const {
  return find_int(key, min, max).value_or(fallback);
}

std::optional<double> Config::find_double(const std::string& key, double min, double max) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const double number =
      value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!std::isfinite(number) || number < min || number > max) {
    const bool any = min == std::numeric_limits<double>::lowest();
    fail_type(key, *value, any ? "a number" : fmt::format("a number from {:g} to {:g}", min, max));
  }
  return number;
}

double Config::get_double(const std::string& key, double fallback, double min, double max) const {
  return find_double(key, min, max).value_or(fallback);
}

bool Config::get_bool(const std::string& key, bool fallback) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail_type(key, *value, "true or false");
  return value->get<bool>();
}

std::optional<std::string> Config::find_string(const std::string& key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail_type(key, *value, "a string");
  return value->get<std::string>();
}

std::string Config::get_string(const std::string& key, const std::string& fallback) const {
  return find_string(key).value_or(fallback);
}

std::vector<bool> Config::get_bools(const std::string& key,
                                    const std::vector<bool>& fallback) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_array()) fail_type(key, *value, "an array of true and false");
  std::vector<bool> out;
  for (const json& element : *value) {
    if (!element.is_boolean()) fail_type(key, *value, "an array of true and false");
    out.push_back(element.get<bool>());
  }
  return out;
}

Config Config::get_object(const std::string& key) const {
  const json* value = find(key);
  if (value != nullptr && !value->is_object()) fail_type(key, *value, "an object");
  Config out;
  out.file_ = fmt::format("{}: {}", file_.string(), key);
  out.root_ = std::make_shared<const json>(value == nullptr ? json::object() : *value);
  return out;
}

std::vector<std::int64_t> Config::get_ints(const std::string& key,
                                           const std::vector<std::int64_t>& fallback,
                                           std::int64_t min, std::int64_t max) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  const std::string expected = "an array of integers" + range_text(min, max);
  if (!value->is_array()) fail_type(key, *value, expected);
  std::vector<std::int64_t> out;
  for (const json& element : *value) {
    const auto integer = integer_in(element, min, max);
    if (!integer) fail_type(key, *value, expected);
    out.push_back(*integer);
  }
  return out;
}

std::vector<double> Config::get_doubles(const std::string& key,
                                        const std::vector<double>& fallback) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  constexpr const char* expected = "an array of finite numbers";
  if (!value->is_array()) fail_type(key, *value, expected);
  std::vector<double> out;
  for (const json& element : *value) {
    if (!element.is_number() || !std::isfinite(element.get<double>())) {
      fail_type(key, *value, expected);
    }
    out.push_back(element.get<double>());
  }
  return out;
}

std::vector<std::string> Config::get_strings(const std::string& key,
                                             const std::vector<std::string>& fallback) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_array()) fail_type(key, *value, "an array of strings");
  std::vector<std::string> out;
  for (const json& element : *value) {
    if (!element.is_string()) fail_type(key, *value, "an array of strings");
    out.push_back(element.get<std::string>());
  }
  return out;
}

std::string class_named_in(const Config& config) {
  if (const auto name = config.find_string("_class_name")) return *name;
  const std::vector<std::string> architectures = config.get_strings("architectures", {});
  return architectures.empty() ? config.get_string("model_type", "") : architectures.front();
}

std::string require_class(const Config& config, const std::vector<std::string>& expected) {
  std::string name = class_named_in(config);
  require(name.empty() || std::ranges::find(expected, name) != expected.end(), Status::data,
          "{}: the class is {}, expected {}", config.file().string(), printable(name),
          fmt::join(expected, " or "));
  return name;
}

ModelIndex read_model_index(const std::filesystem::path& file) {
  const Config config = Config::read(file);
  const auto class_name = config.find_string("_class_name");
  if (!class_name) fail(Status::data, "{}: no '_class_name'", file.string());
  ModelIndex out;
  out.class_name = *class_name;
  for (const auto& [key, value] : config.root_->items()) {
    if (key.starts_with('_') || !value.is_array()) continue;
    const bool left_out = value.size() == 2 && value[0].is_null() && value[1].is_null();
    if (left_out) continue;
    if (value.size() != 2 || !value[0].is_string() || !value[1].is_string()) {
      config.fail_type(key, value, "[library, class]");
    }
    out.parts[key] = {value[0].get<std::string>(), value[1].get<std::string>()};
  }
  return out;
}

}  // namespace reelmesh
