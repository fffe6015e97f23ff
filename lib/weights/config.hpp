#pragma once
// The JSON configs beside the weights. Files are untrusted: each access checks type and range.
// Unknown keys are ignored.
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace reelmesh {

/// The largest configuration that is read; those of released models have a few kB.
inline constexpr std::int64_t max_config_bytes = 16 << 20;

/// A JSON object from a file. Missing keys and nulls give the default (get_…) or nullopt (find_…).
/// A value of another type or outside its range is Error(data) naming file, key, what was found and
/// what was expected.
class Config {
 public:
  /// Throws Error(no_input) if the file is missing, Error(data) if it is not a JSON object.
  static Config read(const std::filesystem::path& file);
  /// The same from text; `file` is for messages.
  static Config parse(std::string_view text, const std::filesystem::path& file);

  const std::filesystem::path& file() const { return file_; }
  bool has(const std::string& key) const;  ///< present and not null
  bool is_string(const std::string& key) const;
  std::vector<std::string> keys() const;  ///< in alphabetical order

  static constexpr std::int64_t min_value = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t max_value = std::numeric_limits<std::int64_t>::max();

  /// Bounds are inclusive and do not apply to defaults. Numbers such as 2.0 are not integers.
  std::int64_t get_int(const std::string& key, std::int64_t fallback, std::int64_t min = min_value,
                       std::int64_t max = max_value) const;
  std::optional<std::int64_t> find_int(const std::string& key, std::int64_t min = min_value,
                                       std::int64_t max = max_value) const;
  /// A number that is finite as a double, from min to max.
  double get_double(const std::string& key, double fallback,
                    double min = std::numeric_limits<double>::lowest(),
                    double max = std::numeric_limits<double>::max()) const;
  std::optional<double> find_double(const std::string& key,
                                    double min = std::numeric_limits<double>::lowest(),
                                    double max = std::numeric_limits<double>::max()) const;
  bool get_bool(const std::string& key, bool fallback) const;
  std::string get_string(const std::string& key, const std::string& fallback) const;
  std::optional<std::string> find_string(const std::string& key) const;
  /// An array of integers in [min, max], of finite numbers, of strings, or of booleans.
  std::vector<std::int64_t> get_ints(const std::string& key,
                                     const std::vector<std::int64_t>& fallback,
                                     std::int64_t min = min_value,
                                     std::int64_t max = max_value) const;
  std::vector<double> get_doubles(const std::string& key,
                                  const std::vector<double>& fallback) const;
  std::vector<std::string> get_strings(const std::string& key,
                                       const std::vector<std::string>& fallback) const;
  std::vector<bool> get_bools(const std::string& key, const std::vector<bool>& fallback) const;
  /// The object under `key`, empty if missing; its messages name both file and key.
  Config get_object(const std::string& key) const;

 private:
  friend struct ModelIndex read_model_index(const std::filesystem::path& file);

  const nlohmann::json* find(const std::string& key) const;
  [[noreturn]] void fail_type(const std::string& key, const nlohmann::json& found,
                              const std::string& expected) const;

  std::filesystem::path file_;
  std::shared_ptr<const nlohmann::json> root_;
};

/// The class that the config.json of a part names: "_class_name" (diffusers), otherwise the first
/// of "architectures" or "model_type" (transformers); empty if there is none.
std::string class_named_in(const Config& config);
/// Error(data) if the config names a class that is not one of these. Returns that class; empty if
/// the config names none.
std::string require_class(const Config& config, const std::vector<std::string>& expected);

/// For a setting with a single supported value: Error(data) for any other.
template <class T>
void only_supported(const Config& config, const std::string& key, const T& found,
                    const T& supported) {
  require(found == supported, Status::data,
          "{}: {} is {}, expected {} (no other value is supported)", config.file().string(), key,
          found, supported);
}

/// model_index.json: the class of the pipeline, and library and class of each part.
struct ModelIndex {
  struct Part {
    std::string library, class_name;
  };
  std::string class_name;             ///< "_class_name", such as "CogVideoXPipeline"
  std::map<std::string, Part> parts;  ///< "transformer" → {"diffusers", "CogVideoX…"}
};

/// Skips parts that the pipeline does not have ([null, null]) and options that are not parts.
/// Throws as Config::read, and Error(data) if _class_name is missing.
ModelIndex read_model_index(const std::filesystem::path& file);

}  // namespace reelmesh
