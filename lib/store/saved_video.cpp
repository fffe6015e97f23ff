#include "store/saved_video.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "store/check.hpp"

namespace reelmesh {

std::optional<std::filesystem::path> named_clip_file(const std::filesystem::path& name) {
  const std::string text = name.string();
  if (text.ends_with(".h5")) return name;
  const std::size_t colon = text.rfind(".h5:");
  if (colon == text.npos) return std::nullopt;
  const std::filesystem::path job = text.substr(0, colon + 3);
  int clip = -1;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 4, end, clip);
  if (error != std::errc() || rest != end || clip < 0) return std::nullopt;
  return clip_path(job.parent_path(), clip);
}

SavedVideo SavedVideo::open(const std::filesystem::path& file, const std::string& where,
                            std::int64_t max_frames, std::int64_t max_pixels) {
  SavedVideo video;
  video.name_ = fmt::format("{}: {}", where, file.string());
  std::error_code error;
  require(std::filesystem::exists(file, error), Status::no_input, "{}: file not found",
          video.name_);
  video.file_ = hdf5::open_if_valid(file);
  require(static_cast<bool>(video.file_), Status::data,
          "{}: found a file that HDF5 cannot open, expected a clip of a job", video.name_);
  const auto shape = hdf5::dataset_shape(video.file_.get(), "video", H5T_NATIVE_UINT8);
  const auto is_video = [](const Shape& found) {
    return found.size() == 4 && found.back() == 3 &&
           std::ranges::all_of(found, [](std::int64_t extent) { return extent > 0; });
  };
  require(shape && is_video(*shape), Status::data,
          "{}: found no dataset video, uint8 [frame, height, width, 3], expected a clip of a job "
          "with output.video = yes",
          video.name_);
  video.shape_ = *shape;
  require(video.frames() <= max_frames && video.height() * video.width() <= max_pixels,
          Status::data,
          "{}: found {} frames of {} x {} pixels, expected at most {} frames of {} pixels",
          video.name_, video.frames(), video.height(), video.width(), max_frames, max_pixels);
  const auto fps = hdf5::read_number(video.file_.get(), "fps");
  require(fps && std::isfinite(*fps) && *fps > 0, Status::data,
          "{}: found no attribute fps with a positive number, expected a clip of a job",
          video.name_);
  video.fps_ = *fps;
  return video;
}

void SavedVideo::check() const {
  require(hdf5::holds(file_.get(), "video", H5T_NATIVE_UINT8, shape_), Status::data,
          "{}: the video has other values than were written: the file is damaged", name_);
}

Tensor SavedVideo::read(std::int64_t frame) const {
  require(hdf5::has_chunks(file_.get(), "video", H5T_NATIVE_UINT8, shape_, frame, 1), Status::data,
          "{}: frame {} of the video cannot be read: the file is damaged", name_, frame);
  try {
    return hdf5::read_values(file_.get(), "video", DType::uint8,
                             {{frame, 0, 0, 0}, {1, height(), width(), 3}})
        .reshape({height(), width(), 3});
  } catch (const Error& error) {
    fail(Status::data, "{}: {}", name_, error.what());
  }
}

}  // namespace reelmesh
