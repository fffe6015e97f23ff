#include "prompts.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/stop.hpp"
#include "job/values.hpp"
#include "text_file.hpp"
#include "weights/json.hpp"

namespace reelmesh::app {
namespace {

std::string counted(std::size_t count, const char* one, const char* several) {
  return fmt::format("{} {}", count, count == 1 ? one : several);
}

std::string skipped_lines(std::size_t comments, std::size_t empty) {
  std::string text;
  if (comments > 0) text = counted(comments, "comment", "comments");
  if (empty > 0) {
    text += (text.empty() ? "" : " and ") + counted(empty, "empty line", "empty lines");
  }
  return fmt::format("; {} skipped", text);
}

using nlohmann::json;

// The clips of a file while it is read, and how many prompts it has.
struct Clips {
  const PromptDefaults& defaults;
  std::vector<ClipRequest> clips;
  std::size_t prompts = 0;

  void add(const RepeatedRequest& asked) {
    ++prompts;
    add_repeated(clips, asked.request, asked.repeat.value_or(defaults.repeat));
  }
  void add(std::string_view prompt, const std::string& where) {
    require_prompt(prompt, where);
    add({{.prompt = std::string(prompt), .negative_prompt = defaults.negative}, {}});
  }
};

// An entry of VBench's lists as parse_repeated takes it.
json from_vbench(json entry, const std::filesystem::path& images, const std::string& where) {
  entry["prompt"] = entry["prompt_en"];
  for (const char* of_vbench : {"prompt_en", "dimension", "auxiliary_info", "image_type"}) {
    entry.erase(of_vbench);
  }
  const auto name = entry.find("image_name");
  if (name == entry.end()) return entry;
  std::error_code error;
  require(name->is_string() && std::filesystem::is_directory(images, error), Status::usage,
          "{}: image_name: found {}, expected the name of an image in the folder prompt.image{}",
          where, name->dump(),
          images.empty() ? ", which is missing"
                         : fmt::format(", but '{}' is no folder", images.string()));
  entry["image"] = (images / name->get<std::string>()).string();
  entry.erase(name);
  return entry;
}

void read_list(Clips& found, std::span<const std::string> lines, const std::string& file) {
  // Those of VBench are nested up to five levels.
  const json list = parse_json(fmt::format("{}", fmt::join(lines, "\n")), file,
                               {.depth = 8, .values = 8 * std::size_t{max_clips}});
  require(list.is_array(), Status::usage, "{}: found {}, expected a list of prompts [...]", file,
          list.is_object() ? "an object" : list.type_name());
  for (const json& item : list) {
    stop::leave_if_requested("the prompts are read");
    const std::string where = fmt::format("{}[{}]", file, found.prompts);
    if (item.is_string()) {
      found.add(item.get<std::string>(), where);
      continue;
    }
    require(item.is_object(), Status::usage, "{}: found {}, expected a prompt or an object {{...}}",
            where, item.is_array() ? "a list" : item.dump());
    const bool of_vbench = item.contains("prompt_en") && !item.contains("prompt");
    found.add(parse_repeated(of_vbench ? from_vbench(item, found.defaults.images, where) : item,
                             found.defaults.negative, where));
  }
}

void read_one_a_line(Clips& found, std::span<const std::string> lines, const std::string& file,
                     bool lines_of_json) {
  int number = 0;
  std::size_t comments = 0, empty = 0;
  for (const std::string& line : lines) {
    stop::leave_if_requested("the prompts are read");
    const std::string where = fmt::format("{}:{}", file, ++number);
    const std::string_view text = trimmed(line);
    if (text.empty()) {
      ++empty;
    } else if (!lines_of_json && text.front() == '#') {
      ++comments;
    } else if (lines_of_json) {
      found.add(parse_repeated(line, found.defaults.negative, where));
    } else {
      found.add(text, where);
    }
  }
  if (found.prompts > 0 && comments + empty > 0) {
    log::info("{} from {}{}", counted(found.prompts, "prompt", "prompts"), file,
              skipped_lines(comments, empty));
  }
}

}  // namespace

std::vector<ClipRequest> read_prompts(const std::filesystem::path& file,
                                      const PromptDefaults& defaults, const std::string& option) {
  const std::filesystem::path kind = file.extension();
  require(kind == ".txt" || kind == ".jsonl" || kind == ".json", Status::usage,
          "{}: found '{}', expected a .txt, .jsonl or .json file", option, file.string());
  const std::vector<std::string> lines = read_lines(file, option);
  Clips found{.defaults = defaults, .clips = {}};
  if (kind == ".json") {
    read_list(found, lines, file.string());
  } else {
    found.clips.reserve(lines.size());
    read_one_a_line(found, lines, file.string(), kind == ".jsonl");
  }
  require(!found.clips.empty(), Status::usage, "{}: found no prompt in '{}', expected at least one",
          option, file.string());
  return std::move(found.clips);
}

void warn_of_empty_prompts(const std::vector<ClipRequest>& clips) {
  const auto is_empty = [](const ClipRequest& clip) {
    return clip.token_ids.empty() && trimmed(clip.prompt).empty();
  };
  const auto count = std::ranges::count_if(clips, is_empty);
  if (count == 0) return;
  const auto first = std::ranges::find_if(clips, is_empty) - clips.begin();
  if (count == 1) {
    log::warning("clip {}: the prompt is empty", first);
  } else {
    log::warning("{} clips have an empty prompt, the first of them clip {}", count, first);
  }
}

}  // namespace reelmesh::app
