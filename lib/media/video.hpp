#pragma once
// Videos that users bring, in the formats that ffmpeg's libraries read. Files are untrusted: limits
// are checked before memory is allocated, and no other file or address is opened.
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh::media {

/// The largest frames that are read, of 8K video, and the most frames if all are decoded.
constexpr std::int64_t max_video_pixels = 8192 * 4096;
constexpr std::int64_t max_video_frames = 10'000;

struct VideoFacts {
  std::int64_t frames = 0;
  std::int64_t height = 0, width = 0;  ///< pixels as they are shown, with the stream's rotation
  double fps = 0;                      ///< average; 0 if the file does not say
  /// When each frame is shown, in milliseconds after the first, if the rate varies; otherwise
  /// empty.
  std::vector<std::int32_t> times;
  // In milliseconds: when the first frame is shown, as the file says, and the mean distance of two;
  // 0 if frames are not found by their times.
  double begin = 0, distance = 0;
};

/// How a frame is found without decoding all before it.
struct FramePlace {
  std::int64_t frame = 0;   ///< its number
  double milliseconds = 0;  ///< when it is shown, as the file says
  double tolerance = 0;     ///< no other frame is as near
};
/// Of a frame of a video with these times, begin and distance; none if it is not found so.
std::optional<FramePlace> frame_place(std::span<const std::int32_t> times, double begin,
                                      double distance, std::int64_t frame);

/// The number of the frame whose time is the nearest to this one, of two the later. times:
/// VideoFacts::times, or at least two of them that follow each other. It is that of all frames,
/// past the last one, if a further frame at the distance of the last two would be nearer.
std::int64_t nearest_frame(std::span<const std::int32_t> times, double milliseconds);

/// Counts the frames of the first video stream without decoding them all to memory. where: begins
/// messages ("prompt.video"). Throws Error(no_input) if the file is missing, Error(data) naming the
/// file if it is not a video, damaged, or too large.
VideoFacts video_facts(const std::filesystem::path& file, const std::string& where);

/// The same of a video of any number of frames, which are counted by the file's packets where these
/// tell all times: then only the first 50 frames are decoded, and others may be damaged.
VideoFacts video_index(const std::filesystem::path& file, const std::string& where);

/// Decodes the first `count` frames, in the order in which they are shown. Each goes as uint8 [row,
/// column, 3], RGB, on the host, to `consume`: the bytes of `ffmpeg -pix_fmt rgb24`. Throws as
/// video_facts, and Error(data) if it has fewer frames.
void read_video(const std::filesystem::path& file, const std::string& where, std::int64_t count,
                const std::function<void(std::int64_t frame, const Tensor& pixels)>& consume);

/// The same for these frames only, in ascending order, each once. Those in between are decoded, but
/// not converted; nothing after the last one is read. first: of the first of them, or one before;
/// with it, decoding begins at the last frame before it from which that is possible, as far as the
/// file's index tells. Without, at the beginning.
void read_video_frames(const std::filesystem::path& file, const std::string& where,
                       const std::vector<std::int64_t>& frames,
                       const std::function<void(std::int64_t frame, const Tensor& pixels)>& consume,
                       const std::optional<FramePlace>& first = {});

}  // namespace reelmesh::media
