#pragma once
// JSON from unchecked files: stricter than the parser, which lets the last of equal
// keys win, reads any depth, and takes a zero byte for the end.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace reelmesh {

struct JsonLimits {
  std::size_t depth = 32;          ///< nested objects and arrays
  std::size_t values = 1'000'000;  ///< of every kind, in all
};

/// Parses `text`. Throws Error(data) that begins with `source` (a file) where the text is not JSON
/// in UTF-8, an object has a key twice, or a limit is passed.
nlohmann::json parse_json(std::string_view text, std::string_view source,
                          const JsonLimits& limits = {});

/// A whole file. Throws Error(no_input) where there is none, Error(data) where it is larger than
/// `max_bytes`, Error(io) where reading fails.
std::string read_text(const std::filesystem::path& file, std::int64_t max_bytes);

/// Text from a file as it may appear in a message: at most 120 characters, all printable.
std::string shown(std::string_view text);

}  // namespace reelmesh
