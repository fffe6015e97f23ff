#include "models/cogvideox/parts.hpp"

namespace reelmesh {
namespace {

struct Facts {
  const char *folder, *stem, *class_name;
};

const Facts& facts_of(CogVideoXPart part) {
  static constexpr std::array<Facts, 3> facts{
      {{"transformer", "diffusion_pytorch_model", "CogVideoXTransformer3DModel"},
       {"vae", "diffusion_pytorch_model", "AutoencoderKLCogVideoX"},
       {"text_encoder", "model", "T5EncoderModel"}}};
  return facts.at(static_cast<std::size_t>(part));
}

}  // namespace

const char* folder_of(CogVideoXPart part) { return facts_of(part).folder; }
const char* stem_of(CogVideoXPart part) { return facts_of(part).stem; }
const char* class_of(CogVideoXPart part) { return facts_of(part).class_name; }

ExpectedShapes tensors_of(CogVideoXPart part, const Config& config) {
  if (part == CogVideoXPart::vae) return cogvideox_vae_tensors(CogVideoXVaeConfig::read(config));
  return needed_tensors_of(part, config);
}

ExpectedShapes needed_tensors_of(CogVideoXPart part, const Config& config) {
  switch (part) {
    case CogVideoXPart::transformer:
      return cogvideox_tensors(CogVideoXConfig::read(config));
    case CogVideoXPart::vae:
      return cogvideox_decoder_tensors(CogVideoXVaeConfig::read(config));
    case CogVideoXPart::text_encoder:
      return t5_tensors(T5Config::read(config));
  }
  fail(Status::internal, "a part without tensors");
}

}  // namespace reelmesh
