#pragma once
// Dimensions as netCDF and xarray expect them: HDF5 dimension scales.
#include <map>
#include <string>
#include <string_view>

#include "store/hdf5.hpp"

namespace reelmesh {

struct Axis {
  std::string_view name;
  const char* meaning;  ///< the attribute long_name
};

namespace axes {
inline constexpr Axis clip{"clip", "number of the clip"};
inline constexpr Axis frame{"frame", "frame"};
inline constexpr Axis height{"height", "pixel row, from the top"};
inline constexpr Axis width{"width", "pixel column, from the left"};
inline constexpr Axis channel{"channel", "colour: red, green, blue"};
inline constexpr Axis latent_frame{"latent_frame", "frame of the latents"};
inline constexpr Axis latent_channel{"latent_channel", "channel of the latents"};
inline constexpr Axis latent_height{"latent_height", "row of the latents, from the top"};
inline constexpr Axis latent_width{"latent_width", "column of the latents, from the left"};
inline constexpr Axis token{"token", "text token"};
inline constexpr Axis embedding{"embedding", "feature of the text encoder"};
inline const std::vector<Axis> latents{latent_frame, latent_channel, latent_height, latent_width};
inline const std::vector<Axis> text{token, embedding};
}  // namespace axes

/// The dimension scales of one file or group: a one-dimensional array of indices for each axis, and
/// `time`, the coordinate of frames.
class Scales {
 public:
  explicit Scales(hid_t parent) : parent_(parent) {}

  /// Attaches the scale of each axis, made when it is first used, and labels the dimensions.
  void attach(hid_t dataset, const std::vector<Axis>& axes, const Shape& shape);
  /// Makes the scale of an axis with these values instead of indices.
  void add(const Axis& axis, const std::vector<std::int32_t>& values);
  /// Makes `time` [frame], in seconds, and names it in the attribute `coordinates` of a video.
  void add_time(hid_t video, std::int64_t frames, double fps);

 private:
  hid_t parent_;
  std::map<std::string, std::pair<hdf5::Dataset, std::int64_t>, std::less<>> made_;
};

}  // namespace reelmesh
