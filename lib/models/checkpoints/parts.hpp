#pragma once
// The parts of a model's folder that hold weights, such as transformer/ and vae/. The class
// named in a part's config.json decides which tensors it has.
#include <array>
#include <string>
#include <vector>

#include "weights/checkpoint.hpp"
#include "weights/config.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// The class that config.json names, such as "STDiT"; CogVideoX's if it names none. Throws
/// Error(data) for an unknown class.
std::string model_class(ModelPart part, const Config& config);

/// Error(data) if no model has both this transformer and the part.
void check_belongs_to(const Config& transformer, ModelPart part, const Config& config);

/// Error(data) if a part's config.json names another class than model_index.json, which decides in
/// diffusers, or if that names a tokenizer that is not T5's.
void check_classes(const ModelPaths& paths);

/// Names and shapes of all tensors that the part's config.json requires. Throws Error(data) as
/// model_class and the configurations' read().
ExpectedShapes expected_tensors(ModelPart part, const Config& config);

/// Only those that are needed to make clips from text: of the VAE, the decoder's; and of an image
/// encoder, those of the layers that are used.
ExpectedShapes needed_tensors(ModelPart part, const Config& config);

/// Whether clips of this transformer begin from an image, which the VAE's encoder encodes. Throws
/// Error(data) as expected_tensors.
bool takes_image(const Config& transformer);

/// Whether a model with this transformer has the part. Throws Error(data) as expected_tensors.
bool needs(const Config& transformer, ModelPart part);

}  // namespace reelmesh
