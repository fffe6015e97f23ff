#pragma once
// From videos of any size and rate to the frames that a sample is trained on.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "job/inputs.hpp"
#include "train/data.hpp"

namespace reelmesh {

/// Which frames of a video are used, ascending: with `fps` frame i is the one nearest to the time i
/// / fps, by the times of the frames if the rate varies, so that some are left out or repeated;
/// without, the first ones. Empty if the video is too short, or has no rate (0) that `fps` needs.
/// An image is a video of 1 frame.
std::vector<std::int64_t> chosen_frames(const InputFacts& video, std::optional<double> fps,
                                        std::int64_t frames);

InputFile input_file(const DataSample& sample);

/// A sample that can be used.
struct UsableSample {
  std::int64_t index = 0;  ///< in the data, with those that cannot be used
  DataSample data;
  InputFacts facts;
  std::size_t bucket = 0;  ///< which of the training's sizes it has
};

/// Which of the sizes a video of this kind is trained in. Of those for which it has enough frames
/// (chosen_frames): the ones with the most frames; of these those whose ratio of height to width is
/// the nearest; of these the largest that is within the video's frames, or the smallest if none is.
/// None if it has too few frames for all.
std::optional<std::size_t> chosen_bucket(const InputFacts& facts, std::optional<double> fps,
                                         std::span<const VideoSize> sizes);

/// Decodes and hashes all videos once, but those that an earlier job of the user knew already
/// (input_cache); the ranks share the work. → the samples whose videos have
/// enough frames for one of the sizes, with the chosen one. The others are left out with a warning
/// each, or only their number after the first 20. With settings.strict the first of them ends the
/// job: Error(no_input) for a missing file, otherwise Error(data). Error(data) also if none is
/// left. Collective; all ranks pass the same samples, of `list`.
std::vector<UsableSample> check_data(const comm::Group& world,
                                     const std::vector<DataSample>& samples,
                                     std::span<const VideoSize> sizes, const DataSettings& settings,
                                     const DataList& list = learned_clips);

/// Bytes that read_frames() needs at its peak for whole frames, with its result and the decoder.
std::int64_t reading_bytes(const UsableSample& sample, const VideoSize& size);

/// The chosen frames → uint8 [frame, row, column, 3]: a box of them. Each is resized as by Pillow
/// with LANCZOS, by the smallest scale that covers size.height × size.width (the longer side is
/// rounded), and cropped in the middle (one more pixel is cut off at the bottom or right if they
/// are odd). Error(data) if the file cannot be read, or has other bytes than check_data found.
Tensor read_frames(const UsableSample& sample, const VideoSize& size, std::optional<double> fps,
                   const Box& box);

}  // namespace reelmesh
