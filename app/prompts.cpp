#include "prompts.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/nearest.hpp"
#include "base/stop.hpp"
#include "text_file.hpp"
#include "values.hpp"
#include "weights/json.hpp"

namespace reelmesh::app {
namespace {

using nlohmann::json;

using Clip = ClipRequest;

// A field of a line. Numbers are parsed from their text by the functions of the options of the same
// name, so that the same limits apply.
struct Field {
  std::string name;
  const char* kind;  // what is expected, for messages
  bool (json::*is_kind)() const noexcept;
  void (*set)(Clip&, const json& value, const std::string& option);
};

using Value = const json&;
using Option = const std::string&;

std::string text_of(Value value, Option option) {
  auto text = value.get<std::string>();
  require_prompt(text, option);  // JSON allows \u0000, HDF5 strings do not
  return text;
}

std::string path_of(Value value, Option option) {
  return parse_path(value.get<std::string>(), option);
}

std::vector<std::int32_t> ids_of(Value value, Option option) {
  require(!value.empty(), Status::usage, "{}: found an empty list, expected token ids", option);
  std::vector<std::int32_t> ids;
  for (const json& id : value) {
    const std::string where = fmt::format("{}[{}]", option, ids.size());
    require(id.is_number(), Status::usage, "{}: found {}, expected a number", where, id.dump());
    ids.push_back(static_cast<std::int32_t>(
        parse_integer(id.dump(), where, 0, std::numeric_limits<std::int32_t>::max())));
  }
  return ids;
}

template <auto member, auto parse>
void set_number(Clip& clip, Value value, Option option) {
  clip.*member = parse(value.dump(), option);
}

const std::vector<Field>& fields() {
  constexpr auto text = &json::is_string;
  constexpr auto number = &json::is_number;
  static const std::vector<Field> table{
      {"prompt", "a text", text, [](Clip& c, Value v, Option o) { c.prompt = text_of(v, o); }},
      {"negative_prompt", "a text", text,
       [](Clip& c, Value v, Option o) { c.negative_prompt = text_of(v, o); }},
      {"token_ids", "a list of numbers", &json::is_array,
       [](Clip& c, Value v, Option o) { c.token_ids = ids_of(v, o); }},
      {"clean", "true or false", &json::is_boolean,
       [](Clip& c, Value v, Option) { c.clean = v.get<bool>(); }},
      {"seed", "a number", number, set_number<&Clip::seed, parse_seed>},
      {"height", "a number", number, set_number<&Clip::height, parse_pixels>},
      {"width", "a number", number, set_number<&Clip::width, parse_pixels>},
      {"frames", "a number", number, set_number<&Clip::frames, parse_frames>},
      {"fps", "a number", number, set_number<&Clip::fps, parse_fps>},
      {"steps", "a number", number, set_number<&Clip::steps, parse_steps>},
      {"guidance", "a number", number, set_number<&Clip::guidance, parse_guidance>},
      {"image", "a text", text, [](Clip& c, Value v, Option o) { c.image = path_of(v, o); }},
      {"video", "a text", text, [](Clip& c, Value v, Option o) { c.video = path_of(v, o); }},
      {"input_hash", "a text", text,
       [](Clip& c, Value v, Option o) { c.input_hash = text_of(v, o); }},
      {"strength", "a number", number, set_number<&Clip::strength, parse_strength>},
  };
  return table;
}

const Field& find_field(const std::string& name, const std::string& where) {
  const auto found = std::ranges::find(fields(), name, &Field::name);
  if (found != fields().end()) return *found;
  std::vector<std::string> names;
  for (const Field& field : fields()) names.push_back(field.name);
  fail(Status::usage, "{}: unknown field \"{}\"; did you mean \"{}\"?", where, name,
       nearest(name, names));
}

json parse_object(const std::string& line, const std::string& where) {
  // Depth 2: an object of values and lists.
  json object = parse_json(line, where, {.depth = 2});
  require(object.is_object(), Status::usage, "{}: found {}, expected a JSON object {{…}}", where,
          object.type_name());
  return object;
}

}  // namespace

ClipRequest parse_request(const std::string& line, const std::string& negative,
                          const std::string& where) {
  const json object = parse_object(line, where);
  require(object.contains("prompt") || object.contains("token_ids"), Status::usage,
          "{}: found neither \"prompt\" nor \"token_ids\", expected one of them", where);
  require(!object.contains("clean") || !object.contains("token_ids"), Status::usage,
          "{}: found both \"clean\" and \"token_ids\", expected \"clean\" only with \"prompt\"",
          where);
  ClipRequest clip;
  clip.negative_prompt = negative;
  clip.where = where;
  for (const auto& [name, value] : object.items()) {
    const Field& field = find_field(name, where);
    const std::string option = where + ": " + name;
    require((value.*field.is_kind)(), Status::usage, "{}: found {}, expected {}", option,
            value.is_array()    ? "a list"
            : value.is_object() ? "an object"
                                : value.dump(),
            field.kind);
    field.set(clip, value, option);
  }
  return clip;
}

std::vector<ClipRequest> read_prompts(const std::filesystem::path& file,
                                      const std::string& negative, const std::string& option) {
  const bool lines_of_json = file.extension() == ".jsonl";
  require(lines_of_json || file.extension() == ".txt", Status::usage,
          "{}: found '{}', expected a .txt or .jsonl file", option, file.string());
  std::vector<ClipRequest> clips;
  int number = 0;
  const std::vector<std::string> lines = read_lines(file, option);
  clips.reserve(lines.size());
  for (const std::string& line : lines) {
    stop::leave_if_requested("the prompts are read");
    const std::string where = fmt::format("{}:{}", file.string(), ++number);
    const std::string_view text = trimmed(line);
    if (text.empty() || (!lines_of_json && text.front() == '#')) continue;
    if (lines_of_json) {
      clips.push_back(parse_request(line, negative, where));
    } else {
      require_prompt(text, where);
      clips.push_back({.prompt = std::string(text), .negative_prompt = negative});
    }
  }
  require(!clips.empty(), Status::usage, "{}: found no prompt in '{}', expected at least one",
          option, file.string());
  return clips;
}

}  // namespace reelmesh::app
