#include "weights/json.hpp"

#include <set>
#include <vector>

#include "base/error.hpp"
#include "weights/mapped_file.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

/// Receives the parser's events and throws as soon as a limit is exceeded or a key is repeated.
class Guard {
 public:
  Guard(std::string_view source, const JsonLimits& limits) : source_(source), limits_(limits) {}

  void see(json::parse_event_t event, const json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        count();
        if (keys_.size() >= limits_.depth) {
          fail(Status::data, "{}: JSON nested deeper than {} levels", source_, limits_.depth);
        }
        keys_.emplace_back();
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end:
        keys_.pop_back();
        break;
      case json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys_.back().insert(key).second) {
          fail(Status::data, "{}: key '{}' appears twice", source_, printable(key));
        }
        break;
      }
      case json::parse_event_t::value:
        count();
        break;
    }
  }

 private:
  void count() {
    if (++seen_ > limits_.values) {
      fail(Status::data, "{}: more than {} JSON values", source_, limits_.values);
    }
  }

  std::string_view source_;
  const JsonLimits& limits_;
  std::vector<std::set<std::string>> keys_;  // seen so far in each open object (empty for an array)
  std::size_t seen_ = 0;
};

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::size_t longest = 120;
  std::string out(text.substr(0, longest));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (text.size() > longest) out += "...";
  return out;
}

json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  if (text.find('\0') != std::string_view::npos) {
    fail(Status::data, "{}: a zero byte, expected JSON text", source);
  }
  Guard guard(source, limits);
  try {
    return json::parse(text, [&](int, json::parse_event_t event, json& parsed) {
      guard.see(event, parsed);
      return true;
    });
  } catch (const json::exception& error) {
    fail(Status::data, "{}: not valid JSON: {}", source, printable(error.what()));
  }
}

std::string read_text(const std::filesystem::path& file, std::int64_t max_bytes) {
  const MappedFile bytes = MappedFile::open(file);
  require(bytes.size() <= max_bytes, Status::data, "{}: {} bytes, expected at most {}",
          file.string(), bytes.size(), max_bytes);
  return bytes.copy(0, bytes.size());
}

}  // namespace reelmesh
