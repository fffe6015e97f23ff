#pragma once
// From videos of any size and rate to the frames that a sample is trained on.
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "job/inputs.hpp"
#include "train/data.hpp"

namespace reelmesh {

/// Frames [begin, end) of a video.
struct FrameRange {
  std::int64_t begin = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();  ///< or all
};

/// Which frames of a part of a video are used, ascending: with `fps` frame i is the one nearest to
/// the time i / fps after the first, by the times of the frames if the rate varies, so that some
/// are left out or repeated; without, the first ones. Empty if the part is too short, or the video
/// has no rate (0) that `fps` needs. An image is a video of 1 frame.
std::vector<std::int64_t> chosen_frames(const InputFacts& video, std::optional<double> fps,
                                        std::int64_t frames, FrameRange part = {});

/// The frames of each clip that a part of a video gives: of FramesFrom::all as many as follow each
/// other, otherwise one; none if it is too short. `middle` begins with the frame in the middle of
/// those with which a clip can begin, `random` with that at the place `drawn`, in [0, 1).
std::vector<std::vector<std::int64_t>> frames_of_clips(const InputFacts& video,
                                                       std::optional<double> fps,
                                                       std::int64_t frames, FramesFrom from,
                                                       double drawn, FrameRange part = {});

InputFile input_file(const DataSample& sample);

/// A clip of a training that can be used.
struct UsableSample {
  /// Counts the clips of all samples of the data, with repetitions; one that cannot be used is one.
  std::int64_t index = 0;
  DataSample data;
  InputFacts facts;                  ///< of its video, without times
  bool is_missing = false;           ///< the video, so that its encoded sample is needed
  std::size_t bucket = 0;            ///< which of the training's sizes it has
  std::vector<std::int64_t> frames;  ///< of the video, ascending, some perhaps repeated
  std::int64_t top = 0, left = 0;    ///< row and column of the resized frame where it begins
  bool is_mirrored = false;          ///< left to right
  std::optional<media::FramePlace> place = {};  ///< of the first frame

  /// What it shows of its video: what encoded samples depend on beside the bytes of the file.
  std::string excerpt() const;
};

/// The rate at which frames are chosen; none: each video's own. model_fps: of clips that it makes.
std::optional<double> sampled_rate(const DataSettings& settings, double model_fps);

/// Which of the sizes a part of a video is trained in. Of those for which it has enough frames
/// (chosen_frames): the ones with the most frames; of these those whose ratio of height to width is
/// the nearest; of these the largest that is within the video's frames, or the smallest if none is.
/// None if it has too few frames for all.
std::optional<std::size_t> chosen_bucket(const InputFacts& facts, std::optional<double> fps,
                                         std::span<const VideoSize> sizes, FrameRange part = {});

/// Hashes all videos once and decodes what is used of them, but for what an earlier job of the user
/// knew already (input_cache); the ranks share the work. → the clips of samples whose videos have
/// enough frames for one of the sizes, with the chosen one; what is random of them is that of
/// data_random(). The other samples are left out with a warning each, or only their number after
/// the first 20. With data.strict the first of them ends the job: Error(no_input) for a missing
/// file, otherwise Error(data). Error(data) also if none is left. goes_on: of a training that has
/// begun, for which it is enough that an earlier job knew the videos, as their samples may be
/// encoded; those that are no longer there are counted in the log. Collective; all ranks pass the
/// same samples, of `list`.
std::vector<UsableSample> check_data(const comm::Group& world,
                                     const std::vector<DataSample>& samples,
                                     std::span<const VideoSize> sizes,
                                     const TrainSettings& settings, double model_fps,
                                     const DataList& list = learned_clips, bool goes_on = false);

/// Bytes that read_frames() needs at its peak for whole frames, with its result and the decoder.
std::int64_t reading_bytes(const UsableSample& sample, const VideoSize& size);

/// The frames of a clip → uint8 [frame, row, column, 3]: a box of them. Each is resized as by
/// Pillow with LANCZOS, by the smallest scale that covers size.height × size.width (the longer side
/// is rounded), and cropped and mirrored as the clip says; the middle is one where one more pixel
/// is cut off at the bottom or right if they are odd. Error(data) if the file cannot be read, or
/// has other bytes than check_data found.
Tensor read_frames(const UsableSample& sample, const VideoSize& size, const Box& box);

}  // namespace reelmesh
