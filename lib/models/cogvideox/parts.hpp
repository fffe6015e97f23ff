#pragma once
// The parts of a CogVideoX folder that hold weights: transformer/, vae/ and text_encoder/.
#include <array>
#include <string>
#include <vector>

#include "models/cogvideox/config.hpp"
#include "models/t5/t5.hpp"

namespace reelmesh {

enum class CogVideoXPart { transformer, vae, text_encoder };

inline constexpr std::array cogvideox_parts{CogVideoXPart::transformer, CogVideoXPart::vae,
                                            CogVideoXPart::text_encoder};

const char* folder_of(CogVideoXPart part);  ///< "text_encoder", also its name in model_index.json
const char* stem_of(CogVideoXPart part);    ///< of its weight files: "model"
const char* class_of(CogVideoXPart part);   ///< "T5EncoderModel"

/// All tensors that the part's config.json asks for. Throws Error(data) as the configurations'
/// read().
ExpectedShapes tensors_of(CogVideoXPart part, const Config& config);

/// Those without which no clip can be made: of the VAE only the decoder's.
ExpectedShapes needed_tensors_of(CogVideoXPart part, const Config& config);

}  // namespace reelmesh
