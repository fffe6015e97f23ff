#pragma once
// The video of a clip of an earlier job, which another job begins from.
#include <filesystem>
#include <optional>
#include <string>

#include "store/hdf5.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh {

/// The file of the clip that a name stands for: "OUT/clips/000003.h5" itself, or clip 3 of
/// "OUT/job.h5:3", which is the same. Empty if the name is of neither form.
std::optional<std::filesystem::path> named_clip_file(const std::filesystem::path& name);

/// A clip's file, which is untrusted.
class SavedVideo {
 public:
  /// where: begins messages ("prompt.video"). Error(no_input) if the file is missing; Error(data)
  /// naming it if it has no video uint8 [frame, height, width, 3] of at most `max_frames` frames
  /// of at most `max_pixels` pixels.
  static SavedVideo open(const std::filesystem::path& file, const std::string& where,
                         std::int64_t max_frames, std::int64_t max_pixels);

  std::int64_t frames() const { return shape_[0]; }
  std::int64_t height() const { return shape_[1]; }
  std::int64_t width() const { return shape_[2]; }
  double fps() const { return fps_; }  ///< frames per second
  /// Error(data) unless all values are those that were written, by their checksums.
  void check() const;
  /// A frame → uint8 [row, column, 3]. Error(data).
  Tensor read(std::int64_t frame) const;

 private:
  hdf5::File file_;
  std::string name_;  ///< for messages: where and file
  Shape shape_;
  double fps_ = 0;
};

}  // namespace reelmesh
