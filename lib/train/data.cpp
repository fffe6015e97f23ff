#include "train/data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/number.hpp"
#include "base/text.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "job/values.hpp"
#include "media/image.hpp"
#include "train/csv.hpp"
#include "weights/json.hpp"

namespace reelmesh {

std::string problem_of(const Error& error, const std::string& where) {
  std::string problem = error.what();
  const std::string prefix = where + ": ";
  if (problem.starts_with(prefix)) problem.erase(0, prefix.size());
  return problem;
}

bool is_image(const std::filesystem::path& file) {
  const std::string extension = lower_case(file.extension().string());
  return std::ranges::find(media::image_extensions, extension) != media::image_extensions.end();
}

namespace {

using nlohmann::json;
using std::filesystem::path;

constexpr std::int64_t max_list_bytes = std::int64_t{256} << 20;

using Names = std::vector<std::string>;
// If the settings name no field or column.
const Names video_keys{"video", "file_name", "path", "file_path", "video_path", "media_path"};
const Names prompt_keys{"prompt", "text", "caption", "cap"};
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

DataSample unusable(const std::string& where, const std::string& problem) {
  DataSample sample;
  sample.where = where;
  sample.problem = problem;
  return sample;
}

// What `make` returns, or the problem that it finds in one sample, which does not end the reading
// of the others.
template <class Make>
DataSample sample_at(const std::string& where, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.status() != Status::data && error.status() != Status::usage) throw;
    return unusable(where, problem_of(error, where));
  }
}

DataSample make_sample(const DataSettings& settings, const path& folder, std::string_view video,
                       std::string_view prompt, const std::string& where) {
  video = trimmed(video);
  prompt = trimmed(prompt);
  require(!video.empty(), Status::data, "{}: found no video, expected a file and a prompt", where);
  require(!prompt.empty() || settings.no_caption == NoCaption::empty, Status::data,
          "{}: found no prompt, expected a file and a prompt (or data.no-caption = empty)", where);
  std::string text(prompt);
  if (!settings.caption_prefix.empty()) {
    text = prompt.empty() ? settings.caption_prefix
                          : fmt::format("{} {}", settings.caption_prefix, prompt);
  }
  if (!text.empty()) require_prompt(text, where);
  DataSample sample;
  sample.video = folder / parse_path(video, where);
  sample.prompt = text;
  sample.where = where;
  return sample;
}

/// The text of a number that a list has under this name; none if it has none.
using NumberField = std::function<std::optional<std::string>(const std::string& name)>;

void set_numbers(DataSample& sample, const NumberField& field) {
  const auto seconds = [&](const char* name) {
    constexpr double max = 1e8;
    const std::optional<std::string> text = field(name);
    return text ? std::optional(parse_number(*text, sample.where + ": " + name, 0, max))
                : std::nullopt;
  };
  sample.start = seconds("start");
  sample.end = seconds("end");
  require(!sample.end || *sample.end > sample.start.value_or(0), Status::data,
          "{}: found start {} and end {}, expected an end after the start", sample.where,
          sample.start.value_or(0), sample.end.value_or(0));
  if (const auto repeat = field("repeat")) {
    sample.repeat = parse_integer(*repeat, sample.where + ": repeat", 1, max_samples);
  }
}

std::string in_words(const Names& names) { return fmt::format("{}", fmt::join(names, ", ")); }

// Of videos and of prompts, the first that is there counts.
Names video_names(const DataSettings& settings) {
  return settings.video_field.empty() ? video_keys : Names{settings.video_field};
}
Names prompt_names(const DataSettings& settings) {
  return settings.caption_field.empty() ? prompt_keys : Names{settings.caption_field};
}

/// The text of the first of these keys that an object has; none: it has none of them.
std::optional<std::string> find_text(const json& object, const Names& keys,
                                     const std::string& where) {
  for (const std::string& key : keys) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) continue;
    require(found->is_string(), Status::data, "{}: {}: found {}, expected a text", where, key,
            found->type_name());
    return found->get<std::string>();
  }
  return std::nullopt;
}

DataSample sample_of_object(const DataSettings& settings, const json& object, const path& folder,
                            const std::string& where) {
  const Names videos = video_names(settings), prompts = prompt_names(settings);
  require(object.is_object(), Status::data, "{}: found {}, expected an object with {} and {}",
          where, object.type_name(), videos[0], prompts[0]);
  const auto video = find_text(object, videos, where), prompt = find_text(object, prompts, where);
  require(video.has_value(), Status::data, "{}: found no video, expected one of {}", where,
          in_words(videos));
  require(prompt || settings.no_caption == NoCaption::empty, Status::data,
          "{}: found no prompt, expected one of {} (or data.no-caption = empty)", where,
          in_words(prompts));
  DataSample sample = make_sample(settings, folder, *video, prompt.value_or(""), where);
  set_numbers(sample, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null()) return std::nullopt;
    return found->is_string() ? found->get<std::string>() : found->dump();
  });
  return sample;
}

std::vector<DataSample> read_json_lines(const DataSettings& settings, const path& file) {
  const std::vector<std::string> lines = read_lines(file);
  std::vector<DataSample> samples;
  std::int64_t number = 0;
  for (const std::string& line : lines) {
    const std::string where = at_line(file, ++number);
    if (line.empty()) continue;
    samples.push_back(sample_at(where, [&] {
      return sample_of_object(settings, parse_json(line, where), file.parent_path(), where);
    }));
  }
  return samples;
}

std::vector<DataSample> read_json_list(const DataSettings& settings, const path& file) {
  constexpr JsonLimits limits{.values = 32 * static_cast<std::size_t>(max_samples)};
  const json list = parse_json(read_list(file), file.string(), limits);
  require(list.is_array(), Status::data, "{}: found {}, expected a list of objects", file.string(),
          list.type_name());
  std::vector<DataSample> samples;
  for (const json& object : list) {
    const std::string where = fmt::format("{}[{}]", file.string(), samples.size());
    samples.push_back(sample_at(
        where, [&] { return sample_of_object(settings, object, file.parent_path(), where); }));
  }
  return samples;
}

std::optional<std::size_t> find_column(const CsvRecord& header, const std::string& name) {
  const auto found = std::ranges::find_if(
      header.fields, [&](const std::string& field) { return trimmed(field) == name; });
  if (found == header.fields.end()) return std::nullopt;
  return static_cast<std::size_t>(found - header.fields.begin());
}

/// The column with the first of these names that there is.
std::size_t find_column(const CsvRecord& header, const Names& names, std::string_view meaning,
                        const path& file) {
  for (const std::string& name : names) {
    if (const auto column = find_column(header, name)) return *column;
  }
  fail(Status::data, "{}: found no column for the {} among '{}', expected one of {}",
       at_line(file, header.line), meaning,
       printable(fmt::format("{}", fmt::join(header.fields, ","))), in_words(names));
}

std::vector<DataSample> read_csv(const DataSettings& settings, const path& file) {
  const std::vector<CsvRecord> records = parse_csv(read_list(file), file.string());
  if (records.empty()) return {};
  const std::size_t columns = records[0].fields.size();
  const std::size_t video = find_column(records[0], video_names(settings), "video", file);
  const std::size_t prompt = find_column(records[0], prompt_names(settings), "prompt", file);
  std::vector<DataSample> samples;
  for (std::size_t i = 1; i < records.size(); ++i) {
    const CsvRecord& record = records[i];
    const std::string where = at_line(file, record.line);
    samples.push_back(sample_at(where, [&] {
      require(record.fields.size() == columns, Status::data,
              "{}: found {} fields, expected {} as in the first line (a text with commas has to be "
              "in quotes)",
              where, record.fields.size(), columns);
      DataSample sample = make_sample(settings, file.parent_path(), record.fields[video],
                                      record.fields[prompt], where);
      set_numbers(sample, [&](const std::string& name) -> std::optional<std::string> {
        const auto column = find_column(records[0], name);
        const std::string_view text = column ? trimmed(record.fields[*column]) : "";
        return text.empty() ? std::nullopt : std::optional<std::string>(text);
      });
      return sample;
    }));
  }
  return samples;
}

std::vector<DataSample> read_two_lists(const DataSettings& settings, const path& prompt_file,
                                       const path& video_file) {
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
    const std::string where = at_line(videos[i].empty() ? video_file : prompt_file, line);
    samples.push_back(sample_at(where, [&] {
      return make_sample(settings, video_file.parent_path(), videos[i], prompts[i], where);
    }));
  }
  return samples;
}

constexpr std::array<std::string_view, 2> caption_extensions{".txt", ".caption"};
// Folders of videos and of their captions, side by side, as CogVideo's trainer has them.
constexpr const char *videos_folder = "videos", *captions_folder = "labels";

bool has_both_folders(const path& folder) {
  std::error_code unreadable;
  return std::filesystem::is_directory(folder / videos_folder, unreadable) &&
         std::filesystem::is_directory(folder / captions_folder, unreadable);
}

struct CaptionName {
  path video;    ///< without extension
  int rank = 0;  ///< of several captions of a video that with the least is taken
};
/// Of a caption by its name: a.txt, a.caption, a.mp4.txt, a.mp4.caption, and behind these such
/// files in labels/ of a.mp4 in videos/. None of other files.
std::optional<CaptionName> caption_name(const path& folder, const path& file) {
  const auto found = std::ranges::find(caption_extensions, lower_case(file.extension().string()));
  if (found == caption_extensions.end()) return std::nullopt;
  path video = file.parent_path() / file.stem();
  auto rank = static_cast<int>(found - caption_extensions.begin());
  const path above = file.parent_path().parent_path();
  if (file.parent_path().filename() == captions_folder && has_both_folders(folder / above)) {
    video = above / videos_folder / file.stem();
    rank += 4;
  }
  const std::vector<std::string_view> known = extensions();
  const bool has_type =
      std::ranges::find(known, lower_case(video.extension().string())) != known.end();
  if (has_type && std::filesystem::exists(folder / video)) {
    video.replace_extension();
    rank += 2;
  }
  return CaptionName{video, rank};
}

// The files of a folder, also of videos/ and labels/ if it has both, or with data.subfolders of all
// below it, relative to it. Names that
// begin with '.' are ignored, with what is below such folders.
std::vector<path> files_of(const DataSettings& settings, const path& folder, const path& below) {
  std::vector<path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / below)) {
    const path name = below / entry.path().filename();
    std::error_code unreadable;  // as of a link to itself: what reads the file says so
    if (entry.path().filename().string().starts_with('.')) continue;
    const bool is_half = below.empty() && (name == videos_folder || name == captions_folder) &&
                         has_both_folders(folder);
    if (!entry.is_directory(unreadable)) {
      files.push_back(name);
    } else if (is_half || (settings.subfolders && !entry.is_symlink(unreadable))) {
      std::ranges::move(files_of(settings, folder, name), std::back_inserter(files));
    }
  }
  return files;
}

/// The files a.mp4 of a folder with their captions. Of several files of one name the first video is
/// taken: an image beside a video is a preview of it.
std::vector<DataSample> read_pairs(const DataSettings& settings, const path& folder) {
  struct Pair {
    std::vector<path> videos;                   // images behind others
    std::vector<std::pair<int, path>> prompts;  // with ranks
  };
  std::map<std::string, Pair> pairs;  // by path without extension
  const std::vector<std::string_view> known = extensions();
  for (const path& file : files_of(settings, folder, {})) {
    if (const auto caption = caption_name(folder, file)) {
      pairs[caption->video.string()].prompts.emplace_back(caption->rank, file);
    } else if (std::ranges::find(known, lower_case(file.extension().string())) != known.end()) {
      pairs[(file.parent_path() / file.stem()).string()].videos.push_back(file);
    }
  }
  const bool any = std::ranges::any_of(pairs, [&](const auto& each) {
    const Pair& pair = each.second;
    return !pair.videos.empty() &&
           (!pair.prompts.empty() || settings.no_caption == NoCaption::empty);
  });
  if (!any) return {};
  std::vector<DataSample> samples;
  for (auto& [name, pair] : pairs) {
    std::ranges::sort(pair.prompts);
    const path prompt_file = pair.prompts.empty() ? path() : pair.prompts.front().second;
    if (pair.videos.empty()) {
      const std::string where = (folder / prompt_file).string();
      samples.push_back(
          unusable(where, fmt::format("found no video {} with one of {}",
                                      path(name).filename().string(), fmt::join(known, ", "))));
      continue;
    }
    std::ranges::sort(pair.videos, {},
                      [](const path& file) { return std::pair(is_image(file), file); });
    const std::string video = (folder / pair.videos.front()).string();
    const std::string where = prompt_file.empty() ? video : (folder / prompt_file).string();
    samples.push_back(sample_at(where, [&] {
      require(!prompt_file.empty() || settings.no_caption == NoCaption::empty, Status::data,
              "{}: found no {}.txt with its prompt, expected one (or data.no-caption = empty)",
              where, path(name).filename().string());
      const std::string prompt = prompt_file.empty() ? "" : read_list(folder / prompt_file);
      return make_sample(settings, folder, pair.videos.front().string(), prompt, where);
    }));
    for (std::size_t i = 1; i < pair.videos.size(); ++i) {
      samples.push_back(
          unusable((folder / pair.videos[i]).string(),
                   fmt::format("{} has the same name", pair.videos.front().string())));
    }
    for (std::size_t i = 1; i < pair.prompts.size(); ++i) {
      samples.push_back(unusable((folder / pair.prompts[i].second).string(),
                                 fmt::format("{} is the caption of {}", prompt_file.string(),
                                             pair.videos.front().string())));
    }
  }
  return samples;
}

std::vector<DataSample> read_folder(const DataSettings& settings, const path& folder,
                                    const char* option) {
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
      "a.txt (or a.caption, a.mp4.txt; or videos/a.mp4 and labels/a.txt)",
      fmt::join(prompt_lists, " or "), video_list);
  require(found.size() <= 1, Status::data, "{}: found {} in {}, expected {}", option,
          fmt::join(found, " and "), folder.string(), expected);
  require(prompts.has_value() == has(video_list), Status::data,
          "{}: found {} alone in {}, expected {}", option,
          prompts ? prompts->filename().string() : video_list, folder.string(), expected);
  if (prompts) return read_two_lists(settings, *prompts, folder / video_list);
  if (has("metadata.csv")) return read_csv(settings, folder / "metadata.csv");
  if (has("metadata.jsonl")) return read_json_lines(settings, folder / "metadata.jsonl");
  std::vector<DataSample> samples = read_pairs(settings, folder);
  require(!samples.empty(), Status::data, "{}: found no list of videos in {}, expected {}", option,
          folder.string(), expected);
  return samples;
}

std::vector<DataSample> read_path(const DataSettings& settings, const path& data,
                                  const char* option) {
  std::error_code error;
  const auto status = std::filesystem::status(data, error);
  require(std::filesystem::exists(status), Status::no_input, "{}: '{}' not found", option,
          data.string());
  if (std::filesystem::is_directory(status)) {
    try {
      return read_folder(settings, data, option);
    } catch (const std::filesystem::filesystem_error& failure) {
      fail(Status::io, "{}: {}: {}", option, data.string(), failure.code().message());
    }
  }
  const std::string extension = lower_case(data.extension().string());
  if (extension == ".jsonl") return read_json_lines(settings, data);
  if (extension == ".json") return read_json_list(settings, data);
  if (extension == ".csv") return read_csv(settings, data);
  fail(Status::usage, "{}: found '{}', expected a folder or a file .jsonl, .json or .csv", option,
       data.string());
}

// How many clips an epoch has of the first `clips`; at least one of one.
std::int64_t repeated(std::int64_t clips, double repeat) {
  constexpr std::int64_t parts = 1000;
  return (clips * std::llround(repeat * parts) + parts - 1) / parts;
}

}  // namespace

std::string shown(const std::vector<DataPath>& paths) {
  std::string text;
  for (const DataPath& data : paths) {
    text += fmt::format("{}{}", text.empty() ? "" : " and ", data.path.string());
  }
  return text;
}

std::vector<DataSample> read_data(const DataSettings& settings, const DataList& list) {
  std::vector<DataSample> all;
  std::int64_t repeats = 0;
  for (const DataPath& data : settings.*list.paths) {
    std::vector<DataSample> samples = read_path(settings, data.path, list.option);
    const std::int64_t count = std::ssize(samples);
    require(count > 0 && count <= max_samples, Status::data,
            "{}: found {} videos in {}, expected 1 to {}", list.option, count, data.path.string(),
            max_samples);
    std::int64_t before = 0;  // clips of the list, with its own repetitions
    for (DataSample& sample : samples) {
      const std::int64_t first = repeated(before, data.repeat);
      before += sample.repeat;
      sample.repeat = repeated(before, data.repeat) - first;
      repeats = std::min(max_samples + 1, repeats + sample.repeat);
      if (sample.repeat > 0) all.push_back(std::move(sample));
    }
  }
  require(repeats <= max_samples, Status::data,
          "{}: found {} with repetitions of more than {} videos, expected at most as many",
          list.option, shown(settings.*list.paths), max_samples);
  return all;
}

std::vector<DataSample> read_data_together(const comm::Group& world, const DataSettings& settings,
                                           const DataList& list) {
  constexpr std::size_t members = 7;
  std::vector<std::string> texts;  // of the members of each sample, on the first rank
  comm::run_on_first_rank(world, [&] {
    const auto text = [](const std::optional<double>& number) {
      return number ? fmt::format("{}", *number) : "";
    };
    for (const DataSample& sample : read_data(settings, list)) {
      texts.insert(texts.end(),
                   {sample.video.string(), sample.prompt, sample.where, sample.problem,
                    text(sample.start), text(sample.end), fmt::format("{}", sample.repeat)});
    }
  });
  texts = comm::broadcast_texts(world, texts, 0);
  std::vector<DataSample> samples;
  for (auto text = texts.begin(); text != texts.end(); text += members) {
    samples.push_back({text[0], text[1], text[2], text[3], read_number<double>(text[4]),
                       read_number<double>(text[5]), read_number<std::int64_t>(text[6]).value()});
  }
  return samples;
}

}  // namespace reelmesh
