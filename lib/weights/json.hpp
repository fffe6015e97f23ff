#pragma once
// JSON from untrusted files. Stricter than nlohmann::json, which keeps the last of repeated keys,
// accepts any depth, and takes a zero byte as the end.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace reelmesh {

struct JsonLimits {
  std::size_t depth = 32;          ///< levels of nested objects and arrays
  std::size_t values = 1'000'000;  ///< total number of values, objects and arrays included
};

/// Parses `text`. Throws Error(data), beginning with `source` (a file), if the text is not JSON in
/// UTF-8, an object repeats a key, or a limit is exceeded.
nlohmann::json parse_json(std::string_view text, std::string_view source,
                          const JsonLimits& limits = {});

/// The contents of a whole file. Throws Error(no_input) if it is missing, Error(data) if it is
/// larger than `max_bytes`, Error(io) if reading fails.
std::string read_text(const std::filesystem::path& file, std::int64_t max_bytes);

/// Untrusted text made safe for messages: at most 120 characters, then "..."; bytes other than
/// printable ASCII become '?'.
std::string printable(std::string_view text);

}  // namespace reelmesh
