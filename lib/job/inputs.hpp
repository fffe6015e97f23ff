#pragma once
// The images and videos that clips begin from.
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "comm/group.hpp"
#include "inputs/input_file.hpp"
#include "job/job.hpp"
#include "layout/layout.hpp"
#include "models/common/vision_encoder.hpp"
#include "sampler/noise.hpp"
#include "sampler/video_size.hpp"
#include "store/output_folder.hpp"

namespace reelmesh {

/// That of a request: its own, otherwise that of the job. Error(usage) if both an image and a video
/// are given.
InputFile clip_input_file(const Job& job, const ClipRequest& request);

/// The image that it ends with, likewise. Error(usage) if it does not begin from an image.
InputFile clip_last_image(const Job& job, const ClipRequest& request);

/// Error(usage) if the job would remove or overwrite what it reads: files that its clips begin
/// from, what options name (Job::paths), parts of the model; or if its cache is one of its own
/// folders but cache/.
void require_inputs_kept(const Job& job, const OutputFolder& output);
/// The same for one file, which `job` reads.
void require_kept(const InputFile& file, const Job& job, const OutputFolder& output);

/// Whether some clip is made from a video.
bool has_videos(const Job& job);

/// By path as given.
using Inputs = std::map<std::filesystem::path, InputFacts>;

/// The facts of all files of a job, by their headers; the frames of videos are counted. Error
/// (usage) as clip_input_file; Error(no_input) for a missing file; Error(data) for one that is
/// damaged, of another type, or too large.
Inputs probe_inputs(const Job& job);
/// The same, with hashes; all files are decoded once, so that a job does not fail at its last clip.
/// The ranks share the work. Error(data) also if a file is not the one that ClipRequest::input_hash
/// says. Collective.
Inputs check_inputs(const comm::Group& world, const Job& job);

/// The facts that each rank passes, by rank, on every rank. Collective.
std::vector<std::vector<InputFacts>> all_gather_facts(const comm::Group& world,
                                                      const std::vector<InputFacts>& mine);

/// How a clip is encoded to latents.
struct ClipInput {
  InputFile file;
  InputFile last;           ///< the image that it ends with, if any
  std::int64_t frames = 1;  ///< of the file that are used, the first ones
  /// Of the video that is encoded. Those that no file gives are grey.
  std::int64_t encoded_frames = 1;
  std::int64_t latent_frames = 1;  ///< that these are encoded to
  double scale = 1;                ///< of its latents
  /// Of the sample of the encoder's posterior; none: its mean is taken, and nothing is drawn.
  std::optional<NoiseRule> noise;

  bool ends_with_image() const { return last.kind != InputKind::none; }
  /// No byte is grey, 0 of −1…1.
  DType pixel_type() const { return encoded_frames > frames ? DType::float32 : DType::uint8; }
};

/// The video that is encoded, of variable rate at its mean rate, resized to `size` → [frame, row,
/// column, 3]: a box of it, with all frames; uint8, or float32 from −1 to 1, as input.pixel_type()
/// says. Images are resized as by Pillow with LANCZOS. inputs: by check_inputs. Error(data) if a
/// file cannot be read, or has other bytes than it had then.
Tensor read_pixels(const ClipInput& input, const Inputs& inputs, const VideoSize& size,
                   const Box& box);

/// Writes a frame [row, column, 3] as frames [first, first + count) of a video, of which `pixels`
/// is a box: its first pixel at this row and column of the video.
void copy_frame(const Tensor& frame, std::int64_t row, std::int64_t column, std::int64_t first,
                std::int64_t count, Tensor& pixels, const Box& box);

/// Bytes that read_pixels needs at its peak for whole frames, with its result and the decoder.
/// facts: of input.file.
std::int64_t reading_bytes(const ClipInput& input, const InputFacts& facts, const VideoSize& size);

/// The pixels of an image as a vision encoder takes them: float32 to.shape(). image: uint8 [row,
/// column, 3] on the host.
Tensor vision_pixels(const Tensor& image, const VisionPixels& to);
/// Those of a file as it is. Errors as read_pixels.
Tensor read_vision_pixels(const InputFile& file, const InputFacts& facts, const VisionPixels& to);
/// An image may be so many times as long as it is wide, or as wide, to be resized for it.
constexpr std::int64_t max_vision_ratio = 64;

}  // namespace reelmesh
