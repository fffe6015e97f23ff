#include "job/requests.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "job/other_names.hpp"
#include "job/values.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

using Value = const json&;
using Where = const std::string&;

constexpr const char* repeat_name = "repeat";  // of prompt files; clips of jobs are one by one

// A field: how it is read, written and removed. Numbers are parsed from their text, so that the
// limits are those of the options.
struct Field {
  std::string name;    // "negative_prompt"
  const char* option;  // that sets it for all clips: "prompt.negative"; empty: none
  bool optional;       // named by optional_fields()
  const char* kind;    // what is expected, for messages
  bool (json::*is_kind)() const noexcept;
  void (*set)(ClipRequest&, Value value, Where option);
  json (*get)(const ClipRequest&);  // null: not given
  void (*clear)(ClipRequest&);
};

template <class T>
const T& value_of(const T& value) {
  return value;
}
template <class T>
const T& value_of(const Seldom<T>& value) {
  return *value;
}

template <auto member>
Field text_field(const char* name, const char* option, bool optional) {
  return {name,
          option,
          optional,
          "a text",
          &json::is_string,
          [](ClipRequest& clip, Value value, Where where) {
            auto text = value.get<std::string>();
            require_prompt(text, where);  // JSON allows \u0000, HDF5 strings do not
            clip.*member = std::move(text);
          },
          [](const ClipRequest& clip) { return json(value_of(clip.*member)); },
          [](ClipRequest& clip) { clip.*member = {}; }};
}

template <auto member>
Field path_field(const char* name, const char* option) {
  return {name, option, true, "a text", &json::is_string,
          [](ClipRequest& clip, Value value, Where where) {
            clip.*member = parse_path(value.get<std::string>(), where);
          },
          [](const ClipRequest& clip) {
            return (clip.*member)->empty() ? json() : json((clip.*member)->string());
          },
          // A clip begins from one file, with its hash and strength.
          [](ClipRequest& clip) {
            if constexpr (member != &ClipRequest::last_image) {
              clip.image = {};
              clip.video = {};
              clip.input_hash = {};
            } else {
              clip.last_image = {};
              clip.last_image_hash = {};
            }
          }};
}

// Of the bytes of a file; written by jobs.
template <auto member>
Field hash_field(const char* name) {
  Field field = text_field<member>(name, "", false);
  field.get = [](const ClipRequest& clip) {
    return (clip.*member)->empty() ? json() : json(*(clip.*member));
  };
  return field;
}

template <std::size_t i>
Field field_of_setting() {
  static constexpr const auto& setting = std::get<i>(clip_settings);
  static constexpr bool is_number =
      std::is_arithmetic_v<typename std::decay_t<decltype(setting)>::Value>;
  return {setting.name(),
          setting.option,
          true,
          is_number ? "a number" : "a text",
          is_number ? &json::is_number : &json::is_string,
          [](ClipRequest& clip, Value value, Where where) {
            const std::string text = is_number ? value.dump() : value.get<std::string>();
            clip.settings.*setting.value = parse_setting(setting, text, where);
          },
          [](const ClipRequest& clip) {
            const auto& value = clip.settings.*setting.value;
            if constexpr (is_number) {
              return value ? json(*value) : json();
            } else {
              return value ? json(value->text()) : json();
            }
          },
          [](ClipRequest& clip) { (clip.settings.*setting.value).reset(); }};
}

template <std::size_t... i>
void add_settings(std::vector<Field>& all, std::index_sequence<i...>) {
  (all.push_back(field_of_setting<i>()), ...);
}

std::vector<std::int32_t> token_ids(Value value, Where option) {
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

const std::vector<Field>& fields() {
  static const std::vector<Field> table = [] {
    std::vector<Field> all{
        text_field<&ClipRequest::prompt>("prompt", "", false),
        {"token_ids", "", false, "a list of numbers", &json::is_array,
         [](ClipRequest& clip, Value value, Where where) {
           clip.token_ids = token_ids(value, where);
         },
         [](const ClipRequest& clip) {
           return clip.token_ids.empty() ? json() : json(clip.token_ids);
         },
         [](ClipRequest& clip) { clip.token_ids.clear(); }},
        text_field<&ClipRequest::negative_prompt>("negative_prompt", "prompt.negative", true),
        {"clean", "prompt.clean", true, "true or false", &json::is_boolean,
         [](ClipRequest& clip, Value value, Where) { clip.clean = value.get<bool>(); },
         [](const ClipRequest& clip) { return clip.clean ? json(*clip.clean) : json(); },
         [](ClipRequest& clip) { clip.clean.reset(); }},
    };
    add_settings(all, std::make_index_sequence<std::tuple_size_v<decltype(clip_settings)>>());
    all.push_back(path_field<&ClipRequest::image>("image", "prompt.image"));
    all.push_back(path_field<&ClipRequest::last_image>("last_image", "prompt.last-image"));
    all.push_back(path_field<&ClipRequest::video>("video", "prompt.video"));
    all.push_back(hash_field<&ClipRequest::input_hash>("input_hash"));
    all.push_back(hash_field<&ClipRequest::last_image_hash>("last_image_hash"));
    return all;
  }();
  return table;
}

const Field& find_field(const std::string& name, Where where) {
  const auto found = std::ranges::find(fields(), name, &Field::name);
  if (found != fields().end()) return *found;
  std::vector<std::string> names{repeat_name}, options{"prompt.repeat"};
  for (const Field& field : fields()) {
    names.push_back(field.name);
    options.emplace_back(field.option);
  }
  fail(Status::usage, "{}: unknown field \"{}\"{}", where, name,
       hint_of_field(name, names, options));
}

// A value of the wrong kind, for messages.
std::string shown(Value value) {
  return value.is_array() ? "a list" : value.is_object() ? "an object" : value.dump();
}

json parse_object(const std::string& line, Where where) {
  // Depth 2: an object of values and lists.
  json object = parse_json(line, where, {.depth = 2});
  require(object.is_object(), Status::usage, "{}: found {}, expected a JSON object {{…}}", where,
          object.type_name());
  return object;
}

}  // namespace

std::string optional_fields() {
  std::vector<std::string> names;
  for (const Field& field : fields()) {
    if (field.optional) names.push_back(field.name);
  }
  names.emplace_back(repeat_name);
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " or ") + names[i];
  }
  return text;
}

namespace {

ClipRequest request_of(const json& object, const std::string& negative, Where where) {
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
            shown(value), field.kind);
    field.set(clip, value, option);
  }
  return clip;
}

}  // namespace

ClipRequest parse_request(const std::string& line, const std::string& negative, Where where) {
  return request_of(parse_object(line, where), negative, where);
}

RepeatedRequest parse_repeated(const std::string& line, const std::string& negative, Where where) {
  return parse_repeated(parse_object(line, where), negative, where);
}

RepeatedRequest parse_repeated(json object, const std::string& negative, Where where) {
  std::optional<int> repeat;
  if (const auto found = object.find(repeat_name); found != object.end()) {
    const std::string option = fmt::format("{}: {}", where, repeat_name);
    require(found->is_number(), Status::usage, "{}: found {}, expected a number", option,
            shown(*found));
    repeat = parse_repeat(found->dump(), option);
    object.erase(found);
  }
  return {request_of(object, negative, where), repeat};
}

int parse_repeat(std::string_view text, Where where) {
  return static_cast<int>(parse_integer(text, where, 1, max_clips));
}

void add_repeated(std::vector<ClipRequest>& clips, const ClipRequest& request, int repeat) {
  const std::string where =
      request.where.empty() ? "prompt.repeat" : fmt::format("{}: {}", request.where, repeat_name);
  require(clips.size() + static_cast<std::size_t>(repeat) <= max_clips, Status::usage,
          "{}: found {}, which with the {} clips before it are more than {}", where, repeat,
          clips.size(), max_clips);
  const std::uint64_t added = static_cast<std::uint64_t>(repeat) - 1;
  const std::optional<std::uint64_t> seed = request.settings.seed;
  require(seed.value_or(0) <= std::numeric_limits<std::uint64_t>::max() - added, Status::usage,
          "{}: found {}, with which the seed {} + {} exceeds 64 bits", where, repeat,
          seed.value_or(0), added);
  for (std::uint64_t i = 0; i <= added; ++i) {
    clips.push_back(request);
    if (seed) clips.back().settings.seed = *seed + i;
  }
}

std::string request_line(const ClipRequest& request) {
  json line = json::object();
  for (const Field& field : fields()) {
    json value = field.get(request);
    if (!value.is_null()) line[field.name] = std::move(value);
  }
  return line.dump();
}

std::int64_t request_bytes(const ClipRequest& request) {
  std::int64_t bytes = sizeof request;
  for (const std::string* text :
       {&request.prompt, &request.negative_prompt, &request.where, &request.image->native(),
        &request.last_image->native(), &request.video->native(), &*request.input_hash,
        &*request.last_image_hash}) {
    // A short text stands in the object itself.
    constexpr std::size_t within = 15;
    if (text->capacity() > within) bytes += static_cast<std::int64_t>(text->capacity()) + 16;
  }
  for (const auto* path : {&request.image, &request.last_image, &request.video}) {
    if (!(*path)->empty()) bytes += std::int64_t{sizeof **path} + 16;
  }
  for (const auto* hash : {&request.input_hash, &request.last_image_hash}) {
    if (!(*hash)->empty()) bytes += std::int64_t{sizeof **hash} + 16;
  }
  return bytes + static_cast<std::int64_t>(request.token_ids.capacity() * sizeof(std::int32_t));
}

void forget(ClipRequest& request, std::string_view option) {
  for (const Field& field : fields()) {
    if (option == field.option) field.clear(request);
  }
}

}  // namespace reelmesh
