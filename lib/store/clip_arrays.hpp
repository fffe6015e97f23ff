#pragma once
// The arrays of a clip file, each described once, for writing, checking and the dimension scales.
#include <array>
#include <vector>

#include "store/axes.hpp"
#include "store/clip.hpp"

namespace reelmesh {

struct ClipArray {
  const char* name;     ///< of the dataset
  const char* meaning;  ///< its attribute long_name
  DType dtype;
  std::vector<Axis> axes;
  std::optional<Sharded> ClipArrays::*values;
  Shape ClipShapes::*shape;

  hid_t type() const { return dtype == DType::uint8 ? H5T_NATIVE_UINT8 : H5T_NATIVE_FLOAT; }
};

inline const std::array<ClipArray, 4> clip_arrays{{
    {"video",
     "video, RGB",
     DType::uint8,
     {axes::frame, axes::height, axes::width, axes::channel},
     &ClipArrays::video,
     &ClipShapes::video},
    {"latents",
     "latents as the sampler leaves them",
     DType::float32,
     {axes::latent_frame, axes::latent_channel, axes::latent_height, axes::latent_width},
     &ClipArrays::latents,
     &ClipShapes::latents},
    {"prompt_embeds",
     "text embedding of the prompt",
     DType::float32,
     {axes::token, axes::embedding},
     &ClipArrays::prompt_embeds,
     &ClipShapes::prompt_embeds},
    {"negative_prompt_embeds",
     "text embedding of the negative prompt",
     DType::float32,
     {axes::token, axes::embedding},
     &ClipArrays::negative_prompt_embeds,
     &ClipShapes::negative_prompt_embeds},
}};
static_assert(clip_arrays.size() * sizeof(Shape) == sizeof(ClipShapes),
              "an array of a clip is not described in clip_arrays");

}  // namespace reelmesh
