#pragma once
// A file that a clip begins from, or that is learned from: an image, a video, or the clip of an
// earlier job in place of a video.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "media/video.hpp"
#include "tensor/tensor.hpp"
#include "weights/file_cache.hpp"

namespace reelmesh {

enum class InputKind { none, image, video };
/// "image", "video"
const char* name_of(InputKind kind);

struct InputFile {
  InputKind kind = InputKind::none;
  std::filesystem::path path;  ///< as given
  std::string where;           ///< for messages: "prompt.image", "prompts.jsonl:3: image"
  /// Of an image that is a frame of a video: its number from 0; if negative, from the end.
  std::optional<std::int64_t> frame = {};
};
/// An image that a user gives: a file; or, if there is none of this name, a frame of a video or of
/// the clip of an earlier job, "street.mp4@12", "OUT/job.h5:3@last".
InputFile image_file(const std::filesystem::path& given, const std::string& where);
/// What is opened: the file itself, or that of the clip or the video that it stands for.
std::filesystem::path opened_path(const InputFile& file);

/// What is known of a file before a job is planned.
struct InputFacts {
  std::int64_t frames = 1;             ///< of a frame's whole video
  std::int64_t height = 0, width = 0;  ///< pixels
  double fps = 0;     ///< of a video; 0 if it does not say, or none that sample.fps may have
  std::string hash;   ///< of its bytes, and a frame's number; empty unless all was read
  std::string state;  ///< FileState::text() of the file that was hashed by this job
  // Of a video's frames, as media::VideoFacts.
  std::vector<std::int32_t> times = {};
  double begin = 0, distance = 0;
};

/// Frames of a video from `first` to `last`.
struct FrameSpan {
  std::int64_t first = 0, last = 0;
  std::optional<media::FramePlace> place = {};  ///< of the first one
};

/// The facts of a file by its headers; the frames of videos are counted. Error(no_input) for a
/// missing file; Error(data) for one that is damaged, of another type, or too large.
InputFacts probe_input(const InputFile& file);
/// The same with its hash; decodes all of it.
InputFacts check_input(const InputFile& file);
/// The same, but of a video of any number of frames, of which only the first ones are decoded
/// (media::video_index). What an earlier job found in the same file is not found again, but taken
/// from `known`, with an empty `state`; what is new is remembered there if that is possible.
InputFacts index_input(const InputFile& file, const FileCache& known);
/// Decodes these frames of a file that has passed index_input(), but those that an earlier job
/// decoded, as `known` says. → of each span why that cannot be done; empty: it can.
std::vector<std::string> check_frames(const InputFile& file, const std::vector<FrameSpan>& spans,
                                      const FileCache& known);
/// What an earlier job has remembered in `known` of a video or image that is no longer there.
std::optional<InputFacts> facts_of_missing(const InputFile& file, const FileCache& known);
/// Of the user: reelmesh/inputs.
FileCache input_cache(const std::filesystem::path& folder = FileCache::folder_of_user("inputs"),
                      std::chrono::milliseconds settling = FileCache::usual_settling);

/// Takes the pixels of frames[place], …, frames[place + count − 1], which are the same frame: uint8
/// [row, column, 3] on the host.
using ConsumeFrame =
    std::function<void(std::int64_t place, std::int64_t count, const Tensor& pixels)>;
/// Decodes these frames of a file, ascending, some perhaps repeated: each once. facts: by
/// check_input or index_input; first: where the first one is, if that is known. Error(data) if the
/// file cannot be read, has fewer frames, or has other bytes than it had then.
void read_input_frames(const InputFile& file, const InputFacts& facts,
                       const std::vector<std::int64_t>& frames, const ConsumeFrame& consume,
                       const std::optional<media::FramePlace>& first = {});

/// Bytes for each pixel of a frame while it is decoded, with the frame.
std::int64_t decoding_bytes(const InputFile& file);

}  // namespace reelmesh
