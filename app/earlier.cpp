#include "earlier.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/stop.hpp"
#include "job/requests.hpp"
#include "job/values.hpp"
#include "store/saved_job.hpp"
#include "text_file.hpp"

namespace reelmesh::app {
namespace {

// Prompts, each of their clips, images and videos are in the requests, and only clips of videos
// have a strength; the folder is that of the other job, and layouts are timed only where it is
// asked for.
constexpr std::array<std::string_view, 10> not_taken{
    "prompt.text",  "prompt.file",     "prompt.repeat", "prompt.image",     "prompt.last-image",
    "prompt.video", "sample.strength", "output.path",   "output.if-exists", "parallel.tune"};

bool is_path(const Given& option) {
  return option.name.starts_with("model.") ||
         (option.name == "parallel.device-map" && option.value.ends_with(".json"));
}

std::string found_from(const std::filesystem::path& folder, const std::string& value) {
  std::error_code error;
  const std::filesystem::path path(value), there = folder / path;
  const bool only_there = path.is_relative() && !std::filesystem::exists(path, error) &&
                          std::filesystem::exists(there, error);
  return only_there ? there.lexically_normal().string() : value;
}

std::string lora_found_from(const std::filesystem::path& folder, const Given& option) {
  if (option.value == "none" || option.value.starts_with('~')) return option.value;
  const std::string path = parse_lora(option.value, option.where).path.string();
  return found_from(folder, path) + option.value.substr(path.size());
}

std::vector<Given> saved_options(const SavedJob& saved, const std::string& file,
                                 std::span<const std::string> names) {
  std::vector<Given> options;
  const std::string& text = saved.options;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (trimmed(line).empty()) continue;
    const std::size_t equals = line.find('=');
    require(equals != std::string_view::npos, Status::data,
            "{}: found '{}' in the attribute options, expected 'key = value'", file, line);
    Given option{.name = std::string(trimmed(line.substr(0, equals))),
                 .value = std::string(trimmed(line.substr(equals + 1)))};
    option.where = file + ": " + option.name;
    require(std::ranges::find(names, option.name) != names.end(), Status::data,
            "{}: found the option {}, which this reelmesh does not have: use the one that wrote "
            "the file",
            file, option.name);
    if (std::ranges::find(not_taken, option.name) != not_taken.end()) continue;
    if (option.name == "model.lora" || option.name == "model.lora-2") {
      option.value = lora_found_from(saved.working_folder, option);
    } else if (is_path(option)) {
      option.value = found_from(saved.working_folder, option.value);
    }
    options.push_back(std::move(option));
  }
  return options;
}

}  // namespace

EarlierJob read_earlier(const std::filesystem::path& file, std::span<const std::string> names) {
  const SavedJob saved = read_job(file);
  EarlierJob job{saved_options(saved, file.string(), names), {}, saved.weights_hash};
  for (const std::string& request : saved.requests) {
    stop::leave_if_requested("the prompts are read");
    const std::string where = fmt::format("{}: /requests[{}]", file.string(), job.clips.size());
    try {
      job.clips.push_back(parse_request(request, "", where));
    } catch (const Error& error) {
      fail(Status::data, "{}", error.what());
    }
  }
  return job;
}

void override_requests(std::vector<ClipRequest>& clips, std::span<const Given> line,
                       const std::string& negative) {
  for (const Given& option : line) {
    for (ClipRequest& clip : clips) {
      forget(clip, option.name);
      if (option.name == "prompt.negative") clip.negative_prompt = negative;
      if (option.name == "prompt.image") forget(clip, "sample.strength");  // of a video
    }
  }
}

void require_other_folder(const std::filesystem::path& file, const std::filesystem::path& output) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::canonical(file, error).parent_path();
  require(!std::filesystem::equivalent(folder, output, error), Status::usage,
          "output.path: found '{}', the folder of the job that is run again, expected another one",
          output.string());
}

}  // namespace reelmesh::app
