#include "weights/json.hpp"

#include <set>
#include <vector>

#include "base/error.hpp"
#include "weights/regular_file.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

/// Receives the events of a parser and throws if a limit is exceeded or a key is repeated.
class Guard final : public nlohmann::json_sax<json> {
 public:
  Guard(std::string_view source, const JsonLimits& limits) : source_(source), limits_(limits) {}

  bool null() override { return count(); }
  bool boolean(bool /*value*/) override { return count(); }
  bool number_integer(number_integer_t /*value*/) override { return count(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return count(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return count(); }
  bool string(string_t& /*value*/) override { return count(); }
  bool binary(binary_t& /*value*/) override { return count(); }
  bool start_object(std::size_t /*elements*/) override { return open(); }
  bool start_array(std::size_t /*elements*/) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second) {
      fail(Status::data, "{}: key '{}' appears twice", source_, printable(key));
    }
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const json::exception& error) override {
    const std::string_view reason = error.what();  // after the library's error id in brackets
    fail(Status::data, "{}: not valid JSON: {}", source_,
         printable(reason.substr(reason.find("] ") + 2)));
  }

 private:
  bool count() {
    if (++seen_ > limits_.values) {
      fail(Status::data, "{}: more than {} JSON values", source_, limits_.values);
    }
    return true;
  }
  bool open() {
    count();
    if (keys_.size() >= limits_.depth) {
      fail(Status::data, "{}: found JSON nested deeper than {} levels, expected at most that",
           source_, limits_.depth);
    }
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
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
  // Two passes, both linear in time: json::parse with a callback searches the parent at each end of
  // an object, which takes quadratic time for an object of many objects.
  Guard guard(source, limits);
  json::sax_parse(text, &guard);
  return json::parse(text);
}

std::string read_text(const std::filesystem::path& file, std::int64_t max_bytes) {
  const RegularFile bytes = RegularFile::open(file);
  use_file(file, bytes.state());
  require(bytes.size() <= max_bytes, Status::data, "{}: {} bytes, expected at most {}",
          file.string(), bytes.size(), max_bytes);
  return bytes.copy(0, bytes.size());
}

}  // namespace reelmesh
