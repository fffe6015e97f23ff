#pragma once
// The parts of a model's folder that hold weights: transformer/, vae/ and text_encoder/. What a
// part is follows from the class in its config.json.
#include <array>
#include <string>
#include <vector>

#include "weights/checkpoint.hpp"
#include "weights/config.hpp"

namespace reelmesh {

enum class ModelPart { transformer, vae, text_encoder };

inline constexpr std::array model_parts{ModelPart::transformer, ModelPart::vae,
                                        ModelPart::text_encoder};

const char* folder_of(ModelPart part);  ///< "text_encoder", also its name in model_index.json
const char* stem_of(ModelPart part);    ///< of its weight files: "model"

/// The class that config.json names, CogVideoX's where it names none: "STDiT". Error(data) for a
/// class that is not known.
std::string class_of(ModelPart part, const Config& config);

/// All tensors that the part's config.json asks for. Throws Error(data) as the configurations'
/// read() and class_of.
ExpectedShapes tensors_of(ModelPart part, const Config& config);

/// Those without which no clip can be made: of the VAE only the decoder's.
ExpectedShapes needed_tensors_of(ModelPart part, const Config& config);

}  // namespace reelmesh
