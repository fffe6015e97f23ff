#pragma once
// The arrays of a clip file.
#include <array>

#include "store/arrays.hpp"
#include "store/clip.hpp"

namespace reelmesh {

/// Attribute of files that are previews.
inline constexpr const char* stopped_after_name = "stopped_after";

inline const std::array<MemberArray<OfClipArrays>, 4> clip_arrays{{
    {{"video",
      "video, RGB",
      &ClipShapes::video,
      DType::uint8,
      {axes::frame, axes::height, axes::width, axes::channel}},
     &ClipArrays::video},
    {{"latents", "latents as the sampler leaves them", &ClipShapes::latents, DType::float32,
      axes::latents},
     &ClipArrays::latents},
    {{"prompt_embeds", "text embedding of the prompt", &ClipShapes::prompt_embeds, DType::float32,
      axes::text},
     &ClipArrays::prompt_embeds},
    {{"negative_prompt_embeds", "text embedding of the negative prompt",
      &ClipShapes::negative_prompt_embeds, DType::float32, axes::text},
     &ClipArrays::negative_prompt_embeds},
}};
static_assert(clip_arrays.size() * sizeof(Shape) == sizeof(ClipShapes),
              "an array of a clip is not described in clip_arrays");

}  // namespace reelmesh
