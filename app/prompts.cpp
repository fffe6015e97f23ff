#include "prompts.hpp"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "nearest.hpp"
#include "text_file.hpp"
#include "values.hpp"

namespace reelmesh::app {
namespace {

using nlohmann::json;

// A field of a line. Numbers are handed on as text, so that they meet the same limits as the
// options of the same name.
struct Field {
  std::string name;
  bool number;
  void (*set)(ClipRequest&, const std::string& text, const std::string& option);
};

using Clip = ClipRequest;
using Text = const std::string&;

const std::vector<Field>& fields() {
  static const std::vector<Field> table{
      {"prompt", false, [](Clip& c, Text text, Text) { c.prompt = text; }},
      {"negative_prompt", false, [](Clip& c, Text text, Text) { c.negative_prompt = text; }},
      {"seed", true, [](Clip& c, Text text, Text option) { c.seed = parse_seed(text, option); }},
      {"height", true,
       [](Clip& c, Text text, Text option) { c.height = parse_pixels(text, option); }},
      {"width", true,
       [](Clip& c, Text text, Text option) { c.width = parse_pixels(text, option); }},
      {"frames", true,
       [](Clip& c, Text text, Text option) { c.frames = parse_frames(text, option); }},
      {"fps", true, [](Clip& c, Text text, Text option) { c.fps = parse_fps(text, option); }},
      {"steps", true, [](Clip& c, Text text, Text option) { c.steps = parse_steps(text, option); }},
      {"guidance", true,
       [](Clip& c, Text text, Text option) { c.guidance = parse_guidance(text, option); }},
  };
  return table;
}

const Field& find_field(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (const Field& field : fields()) {
    if (field.name == name) return field;
    names.push_back(field.name);
  }
  fail(Status::usage, "{}: unknown field \"{}\"; the nearest known field is \"{}\"", where, name,
       nearest(name, names));
}

// One flat JSON object. The library itself would let the last of two equal keys win and follow
// brackets to any depth, so both are refused while it reads.
json parse_object(const std::string& line, const std::string& where) {
  std::set<std::string> seen;
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    require(!opens || depth == 0, Status::usage, "{}: a field holds a list or an object, {}", where,
            "expected texts and numbers only");
    if (event == json::parse_event_t::key) {
      const auto name = value.get<std::string>();
      require(seen.insert(name).second, Status::usage, "{}: field \"{}\" is given twice", where,
              name);
    }
    return true;
  };
  try {
    json object = json::parse(line, check);
    require(object.is_object(), Status::usage, "{}: found {}, expected a JSON object {{…}}", where,
            object.type_name());
    return object;
  } catch (const json::exception& error) {
    // Before the reason stands the library's own number in brackets.
    const std::string_view reason = error.what();
    fail(Status::data, "{}: not a JSON object: {}", where, reason.substr(reason.find("] ") + 2));
  }
}

ClipRequest parse_clip(const std::string& line, const std::string& negative,
                       const std::string& where) {
  const json object = parse_object(line, where);
  require(object.contains("prompt"), Status::usage, "{}: field \"prompt\" is missing", where);
  ClipRequest clip;
  clip.negative_prompt = negative;
  for (const auto& [name, value] : object.items()) {
    const Field& field = find_field(name, where);
    const std::string option = where + ": " + name;
    require(field.number ? value.is_number() : value.is_string(), Status::usage,
            "{}: found {}, expected a {}", option, value.dump(), field.number ? "number" : "text");
    const std::string text = field.number ? value.dump() : value.get<std::string>();
    if (!field.number) require_text(text, option);  // \u0000 is JSON, but no text for a file
    field.set(clip, text, option);
  }
  return clip;
}

}  // namespace

std::vector<ClipRequest> read_prompts(const std::filesystem::path& file,
                                      const std::string& negative, const std::string& option) {
  const bool lines_of_json = file.extension() == ".jsonl";
  require(lines_of_json || file.extension() == ".txt", Status::usage,
          "{}: '{}' is neither .txt nor .jsonl", option, file.string());
  std::vector<ClipRequest> clips;
  int number = 0;
  for (const std::string& line : read_lines(file, option)) {
    const std::string where = fmt::format("{}:{}", file.string(), ++number);
    const std::string_view text = trimmed(line);
    if (text.empty() || (!lines_of_json && text.front() == '#')) continue;
    if (lines_of_json) {
      clips.push_back(parse_clip(line, negative, where));
    } else {
      clips.push_back({.prompt = std::string(text), .negative_prompt = negative});
    }
  }
  require(!clips.empty(), Status::usage, "{}: '{}' has no prompt", option, file.string());
  return clips;
}

}  // namespace reelmesh::app
