#pragma once
// What users bring to learn from: videos with prompts, listed in a file or a folder.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/group.hpp"
#include "job/train_settings.hpp"

namespace reelmesh {

/// An option of [data] that names videos with prompts.
struct DataList {
  const char* option;
  std::vector<DataPath> DataSettings::*paths;
};
inline constexpr DataList learned_clips{"data.path", &DataSettings::paths};
inline constexpr DataList validation_clips{"data.validation", &DataSettings::validation};

/// One video and its prompt. The file need not exist (check_data, train/frames.hpp).
struct DataSample {
  std::filesystem::path video;
  std::string prompt;
  std::string where;    ///< for messages: "clips.jsonl:3"
  std::string problem;  ///< why it cannot be used, without video and prompt; empty: none is known
  /// Seconds of the video between which its frames are; unset: from its beginning, to its end.
  std::optional<double> start = {}, end = {};
  std::int64_t repeat = 1;  ///< how often an epoch has it
};

/// An epoch has at most so many, with repetitions.
inline constexpr std::int64_t max_samples = 1'000'000;

/// The files and folders of a list, for messages.
std::string shown(const std::vector<DataPath>& paths);

bool is_image(const std::filesystem::path& file);

/// The text of an error about the sample at this place, without the place.
std::string problem_of(const Error& error, const std::string& where);

/// The samples of a list, by default of data.path: of each of its paths, in order. Of the first n
/// clips of a path with the weight w (DataPath::repeat) an epoch has ⌈n · w⌉. A path is one of:
///
/// - a list: a .jsonl file with a JSON object a line, a .json file with an array of objects, or a
///   .csv file (RFC 4180) whose first record names the columns. The video is that of
///   data.video-field, or the first of `video`, `file_name`, `path`, `file_path`, `video_path`,
///   `media_path` that is there, relative to the list's folder; the prompt that of
///   data.caption-field, or the first of `prompt`, `text`, `caption`, `cap`. `start` and `end`, in
///   seconds, and `repeat` are numbers, in .csv files unless they are empty. Others are ignored.
/// - a folder with one of metadata.csv, metadata.jsonl, or `prompts.txt` (or prompt.txt,
///   captions.txt) and videos.txt with a prompt and a video a line.
/// - a folder without these, in which each a.mp4, or file of another type that lib/media reads, has
///   its prompt in a.txt, a.caption, a.mp4.txt or a.mp4.caption, the first of these that is there;
///   or has it so in labels/ and is itself in videos/ (CogVideo's trainer). Sorted by name; names
///   that begin with '.' are ignored, other subfolders unless data.subfolders says otherwise.
///
/// Prompts begin with data.caption-prefix. Where a video or prompt is missing or is not valid text,
/// the sample has a problem; with data.no-caption = empty a missing prompt is an empty one.
/// Throws Error(no_input) if the list is missing, Error(usage) for a file of another type,
/// Error(data) naming file and line if it cannot be divided into samples, or the folder has none or
/// several of these.
std::vector<DataSample> read_data(const DataSettings& settings,
                                  const DataList& list = learned_clips);

/// The same, read by the first rank, on all ranks. Collective.
std::vector<DataSample> read_data_together(const comm::Group& world, const DataSettings& settings,
                                           const DataList& list = learned_clips);

}  // namespace reelmesh
