#include "train/data.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/text.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "job/values.hpp"
#include "media/image.hpp"
#include "train/csv.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;
using std::filesystem::path;

constexpr std::int64_t max_list_bytes = std::int64_t{256} << 20;
constexpr std::int64_t max_samples = 1'000'000;

constexpr std::array<std::string_view, 4> video_keys{"video", "file_name", "path", "file_path"};
constexpr std::array<std::string_view, 3> prompt_keys{"prompt", "text", "caption"};
constexpr std::array<std::string_view, 3> prompt_lists{"prompts.txt", "prompt.txt", "captions.txt"};
constexpr const char* video_list = "videos.txt";
// Of the videos that lib/media reads.
constexpr std::array<std::string_view, 11> video_extensions{
    ".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".ts", ".m2ts", ".ogv", ".ogg", ".gif"};

/// Of the files that may be samples.
std::vector<std::string_view> extensions() {
  std::vector<std::string_view> all(video_extensions.begin(), video_extensions.end());
  all.insert(all.end(), media::image_extensions.begin(), media::image_extensions.end());
  return all;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view spaces = " \t\n\r";
  const std::size_t first = text.find_first_not_of(spaces);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

/// The text of a list, without a byte order mark, with LF as line ends.
std::string read_list(const path& file) {
  const std::string text = read_text(file, max_list_bytes);
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = text.starts_with("\xef\xbb\xbf") ? 3 : 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      result += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      result += '\n';
    }
  }
  return result;
}

/// Its lines; empty ones at the end are dropped.
std::vector<std::string> read_lines(const path& file) {
  const std::string text = read_list(file);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.emplace_back(trimmed(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::string at_line(const path& file, std::int64_t line) {
  return fmt::format("{}:{}", file.string(), line);
}

DataSample make_sample(const path& folder, std::string_view video, std::string_view prompt,
                       const std::string& where) {
  video = trimmed(video);
  prompt = trimmed(prompt);
  require(!video.empty(), Status::data, "{}: found no video, expected a file and a prompt", where);
  require(!prompt.empty(), Status::data, "{}: found no prompt, expected a file and a prompt",
          where);
  require_prompt(prompt, where);
  return {folder / parse_path(video, where), std::string(prompt), where};
}

template <std::size_t n>
std::string in_words(const std::array<std::string_view, n>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The text of the first of these keys that an object has.
template <std::size_t n>
std::string text_of(const json& object, const std::array<std::string_view, n>& keys,
                    std::string_view meaning, const std::string& where) {
  for (const std::string_view key : keys) {
    const auto found = object.find(key);
    if (found == object.end()) continue;
    require(found->is_string(), Status::data, "{}: {}: found {}, expected a text", where, key,
            found->type_name());
    return found->template get<std::string>();
  }
  fail(Status::data, "{}: found no {}, expected one of {}", where, meaning, in_words(keys));
}

DataSample sample_of_object(const json& object, const path& folder, const std::string& where) {
  require(object.is_object(), Status::data, "{}: found {}, expected an object with {} and {}",
          where, object.type_name(), video_keys[0], prompt_keys[0]);
  const std::string video = text_of(object, video_keys, "video", where);
  const std::string prompt = text_of(object, prompt_keys, "prompt", where);
  return make_sample(folder, video, prompt, where);
}

std::vector<DataSample> read_json_lines(const path& file) {
  const std::vector<std::string> lines = read_lines(file);
  std::vector<DataSample> samples;
  std::int64_t number = 0;
  for (const std::string& line : lines) {
    const std::string where = at_line(file, ++number);
    if (line.empty()) continue;
    samples.push_back(sample_of_object(parse_json(line, where), file.parent_path(), where));
  }
  return samples;
}

std::vector<DataSample> read_json_list(const path& file) {
  constexpr JsonLimits limits{.values = 32 * static_cast<std::size_t>(max_samples)};
  const json list = parse_json(read_list(file), file.string(), limits);
  require(list.is_array(), Status::data, "{}: found {}, expected a list of objects", file.string(),
          list.type_name());
  std::vector<DataSample> samples;
  for (const json& object : list) {
    const std::string where = fmt::format("{}[{}]", file.string(), samples.size());
    samples.push_back(sample_of_object(object, file.parent_path(), where));
  }
  return samples;
}

/// The column with the first of these names that there is.
template <std::size_t n>
std::size_t find_column(const CsvRecord& header, const std::array<std::string_view, n>& names,
                        std::string_view meaning, const path& file) {
  for (const std::string_view name : names) {
    const auto found = std::ranges::find_if(
        header.fields, [&](const std::string& field) { return trimmed(field) == name; });
    if (found != header.fields.end()) {
      return static_cast<std::size_t>(found - header.fields.begin());
    }
  }
  fail(Status::data, "{}: found no column for the {} among '{}', expected one of {}",
       at_line(file, header.line), meaning,
       printable(fmt::format("{}", fmt::join(header.fields, ","))), in_words(names));
}

std::vector<DataSample> read_csv(const path& file) {
  const std::vector<CsvRecord> records = parse_csv(read_list(file), file.string());
  if (records.empty()) return {};
  const std::size_t columns = records[0].fields.size();
  const std::size_t video = find_column(records[0], video_keys, "video", file);
  const std::size_t prompt = find_column(records[0], prompt_keys, "prompt", file);
  std::vector<DataSample> samples;
  for (std::size_t i = 1; i < records.size(); ++i) {
    const auto& [line, fields] = records[i];
    const std::string where = at_line(file, line);
    require(fields.size() == columns, Status::data,
            "{}: found {} fields, expected {} as in the first line (a text with commas has to be "
            "in quotes)",
            where, fields.size(), columns);
    samples.push_back(make_sample(file.parent_path(), fields[video], fields[prompt], where));
  }
  return samples;
}

std::vector<DataSample> read_two_lists(const path& prompt_file, const path& video_file) {
  const std::vector<std::string> prompts = read_lines(prompt_file), videos = read_lines(video_file);
  const bool more_prompts = prompts.size() > videos.size();
  require(prompts.size() == videos.size(), Status::data,
          "{}: found a line without another in {}: there are {} prompts and {} videos, expected as "
          "many",
          at_line(more_prompts ? prompt_file : video_file,
                  static_cast<std::int64_t>(std::min(prompts.size(), videos.size())) + 1),
          (more_prompts ? video_file : prompt_file).string(), prompts.size(), videos.size());
  std::vector<DataSample> samples;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto line = static_cast<std::int64_t>(i) + 1;
    samples.push_back(make_sample(video_file.parent_path(), videos[i], prompts[i],
                                  at_line(videos[i].empty() ? video_file : prompt_file, line)));
  }
  return samples;
}

/// The files a.mp4 and a.txt of a folder.
std::vector<DataSample> read_pairs(const path& folder) {
  struct Pair {
    path video, prompt;
  };
  std::map<std::string, Pair> pairs;  // by name without extension
  const std::vector<std::string_view> known = extensions();
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const path name = entry.path().filename();
    const std::string extension = lower_case(name.extension().string());
    const bool is_prompt = extension == ".txt";
    if (name.string().starts_with('.') || entry.is_directory() ||
        (!is_prompt && std::ranges::find(known, extension) == known.end())) {
      continue;
    }
    Pair& pair = pairs[name.stem().string()];
    path& file = is_prompt ? pair.prompt : pair.video;
    require(file.empty(), Status::data, "{}: found {} and {}, expected one {} of this name",
            folder.string(), std::min(file, name).string(), std::max(file, name).string(),
            is_prompt ? "prompt" : "video");
    file = name;
  }
  const bool any = std::ranges::any_of(pairs, [](const auto& each) {
    return !each.second.video.empty() && !each.second.prompt.empty();
  });
  if (!any) return {};
  std::vector<DataSample> samples;
  for (const auto& [name, pair] : pairs) {
    require(!pair.prompt.empty(), Status::data, "{}: found no {}.txt with its prompt",
            (folder / pair.video).string(), name);
    const path prompt = folder / pair.prompt;
    require(!pair.video.empty(), Status::data, "{}: found no video {} with one of {}",
            prompt.string(), name, fmt::join(known, ", "));
    samples.push_back(make_sample(folder, pair.video.string(), read_list(prompt), prompt.string()));
  }
  return samples;
}

std::vector<DataSample> read_folder(const path& folder, const char* option) {
  const auto has = [&](std::string_view name) { return std::filesystem::exists(folder / name); };
  std::vector<std::string> found;
  for (const char* name : {"metadata.csv", "metadata.jsonl"}) {
    if (has(name)) found.emplace_back(name);
  }
  std::optional<path> prompts;
  for (const std::string_view name : prompt_lists) {
    if (!has(name)) continue;
    found.emplace_back(name);
    prompts = folder / name;
  }
  const std::string expected = fmt::format(
      "one of metadata.csv, metadata.jsonl, and {} with {}, or pairs such as a.mp4 and "
      "a.txt",
      fmt::join(prompt_lists, " or "), video_list);
  require(found.size() <= 1, Status::data, "{}: found {} in {}, expected {}", option,
          fmt::join(found, " and "), folder.string(), expected);
  require(prompts.has_value() == has(video_list), Status::data,
          "{}: found {} alone in {}, expected {}", option,
          prompts ? prompts->filename().string() : video_list, folder.string(), expected);
  if (prompts) return read_two_lists(*prompts, folder / video_list);
  if (has("metadata.csv")) return read_csv(folder / "metadata.csv");
  if (has("metadata.jsonl")) return read_json_lines(folder / "metadata.jsonl");
  std::vector<DataSample> samples = read_pairs(folder);
  require(!samples.empty(), Status::data, "{}: found no list of videos in {}, expected {}", option,
          folder.string(), expected);
  return samples;
}

std::vector<DataSample> read_path(const path& data, const char* option) {
  std::error_code error;
  const auto status = std::filesystem::status(data, error);
  require(std::filesystem::exists(status), Status::no_input, "{}: '{}' not found", option,
          data.string());
  if (std::filesystem::is_directory(status)) {
    try {
      return read_folder(data, option);
    } catch (const std::filesystem::filesystem_error& failure) {
      fail(Status::io, "{}: {}: {}", option, data.string(), failure.code().message());
    }
  }
  const std::string extension = lower_case(data.extension().string());
  if (extension == ".jsonl") return read_json_lines(data);
  if (extension == ".json") return read_json_list(data);
  if (extension == ".csv") return read_csv(data);
  fail(Status::usage, "{}: found '{}', expected a folder or a file .jsonl, .json or .csv", option,
       data.string());
}

}  // namespace

std::vector<DataSample> read_data(const DataSettings& settings, const DataList& list) {
  const path& data = settings.*list.path;
  std::vector<DataSample> samples = read_path(data, list.option);
  const std::int64_t count = std::ssize(samples);
  require(count > 0 && count <= max_samples, Status::data,
          "{}: found {} videos in {}, expected 1 to {}", list.option, count, data.string(),
          max_samples);
  return samples;
}

std::vector<DataSample> read_data_together(const comm::Group& world, const DataSettings& settings,
                                           const DataList& list) {
  std::vector<std::string> texts;  // three of each sample, on the first rank
  comm::run_on_first_rank(world, [&] {
    for (const DataSample& sample : read_data(settings, list)) {
      texts.insert(texts.end(), {sample.video.string(), sample.prompt, sample.where});
    }
  });
  texts = comm::broadcast_texts(world, texts, 0);
  std::vector<DataSample> samples;
  for (std::size_t i = 0; i + 2 < texts.size(); i += 3) {
    samples.push_back({texts[i], texts[i + 1], texts[i + 2]});
  }
  return samples;
}

}  // namespace reelmesh
