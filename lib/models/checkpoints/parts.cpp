#include "models/checkpoints/parts.hpp"

#include <algorithm>

#include "models/autoencoder/decoder.hpp"
#include "models/autoencoder/encoder.hpp"
#include "models/clip/vision.hpp"
#include "models/cogvideox/decoder.hpp"
#include "models/cogvideox/encoder.hpp"
#include "models/cogvideox/transformer.hpp"
#include "models/common/asked.hpp"
#include "models/opensora/transformer.hpp"
#include "models/t5/t5.hpp"
#include "models/wan/decoder.hpp"
#include "models/wan/encoder.hpp"
#include "models/wan/transformer.hpp"
#include "weights/json.hpp"
#include "weights/tokenizer_file.hpp"

namespace reelmesh {
namespace {

using Tensors = ExpectedShapes (*)(const Config&);

enum class Pipeline { cogvideox, open_sora, wan };

struct Kind {
  ModelPart part;
  const char* class_name;
  std::vector<Pipeline> of;
  Tensors all, needed;
};

template <class Model, class ModelConfig>
ExpectedShapes tensors_by_config(const Config& config) {
  return tensors_of<Model>(ModelConfig::read(config));
}

template <class EncoderLayers, class DecoderLayers, class ModelConfig>
ExpectedShapes autoencoder_tensors(const Config& config) {
  ExpectedShapes all = tensors_by_config<DecoderLayers, ModelConfig>(config);
  all.merge(tensors_by_config<EncoderLayers, ModelConfig>(config));
  return all;
}

ExpectedShapes t5_tensors(const Config& config) {
  const T5Config t5 = T5Config::read(config);
  return tensors_of<T5Layers>(t5, T5Part::whole(t5));
}

ExpectedShapes clip_tensors(const Config& config) {
  return ClipVision::all_tensors(ClipVisionConfig::read(config));
}

// A configuration that names no class gets the first entry of its part.
const std::vector<Kind>& kinds() {
  constexpr Tensors cogvideox = tensors_by_config<CogVideoXTransformer, CogVideoXConfig>;
  constexpr Tensors cogvideox_decoder = tensors_by_config<CogVideoXDecoder, CogVideoXVaeConfig>;
  constexpr Tensors cogvideox_vae =
      autoencoder_tensors<CogVideoXEncoder, CogVideoXDecoder, CogVideoXVaeConfig>;
  constexpr Tensors stdit = tensors_by_config<STDiT, STDiTConfig>;
  constexpr Tensors opensora_decoder = tensors_by_config<OpenSoraDecoder, OpenSoraVaeConfig>;
  constexpr Tensors opensora_vae =
      autoencoder_tensors<OpenSoraEncoder, OpenSoraDecoder, OpenSoraVaeConfig>;
  constexpr Tensors wan = tensors_by_config<WanTransformer, WanConfig>;
  constexpr Tensors wan_decoder = tensors_by_config<WanDecoder, WanVaeConfig>;
  constexpr Tensors wan_vae = autoencoder_tensors<WanEncoder, WanDecoder, WanVaeConfig>;
  constexpr Tensors t5 = t5_tensors, clip = clip_tensors;
  constexpr Tensors used_clip = tensors_by_config<ClipVision, ClipVisionConfig>;
  using P = Pipeline;
  static const std::vector<Kind> all{
      {ModelPart::transformer, "CogVideoXTransformer3DModel", {P::cogvideox}, cogvideox, cogvideox},
      {ModelPart::transformer, "STDiT", {P::open_sora}, stdit, stdit},
      {ModelPart::transformer, "STDiT3", {P::open_sora}, stdit, stdit},
      {ModelPart::transformer, "WanTransformer3DModel", {P::wan}, wan, wan},
      {ModelPart::transformer_2, "WanTransformer3DModel", {P::wan}, wan, wan},
      {ModelPart::vae, "AutoencoderKLCogVideoX", {P::cogvideox}, cogvideox_vae, cogvideox_decoder},
      {ModelPart::vae, "AutoencoderKL", {P::open_sora}, opensora_vae, opensora_decoder},
      {ModelPart::vae, "OpenSoraVAE_V1_2", {P::open_sora}, opensora_vae, opensora_decoder},
      {ModelPart::vae, "VideoAutoencoderPipeline", {P::open_sora}, opensora_vae, opensora_decoder},
      {ModelPart::vae, "AutoencoderKLWan", {P::wan}, wan_vae, wan_decoder},
      {ModelPart::text_encoder, "T5EncoderModel", {P::cogvideox, P::open_sora}, t5, t5},
      {ModelPart::text_encoder, "UMT5EncoderModel", {P::wan}, t5, t5},
      {ModelPart::image_encoder, "CLIPVisionModel", {P::wan}, clip, used_clip},
      {ModelPart::image_encoder, "CLIPVisionModelWithProjection", {P::wan}, clip, used_clip}};
  return all;
}

const Kind& model_kind(ModelPart part, const Config& config) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) {
    if (kind.part == part) names.emplace_back(kind.class_name);
  }
  // T5Config::read knows the names of the whole models whose encoders are used.
  const std::string name = part == ModelPart::text_encoder
                               ? std::string(T5Config::read(config).class_name())
                               : require_class(config, names);
  return *std::ranges::find_if(kinds(), [&](const Kind& kind) {
    return kind.part == part && (name.empty() || name == kind.class_name);
  });
}

}  // namespace

std::string model_class(ModelPart part, const Config& config) {
  return model_kind(part, config).class_name;
}

void check_belongs_to(const Config& transformer, ModelPart part, const Config& config) {
  const Kind& found = model_kind(part, config);
  const std::vector<Pipeline>& of = model_kind(ModelPart::transformer, transformer).of;
  std::vector<std::string> expected;
  for (const Kind& kind : kinds()) {
    if (kind.part != part || std::ranges::find_first_of(kind.of, of) == kind.of.end()) continue;
    if (&kind == &found) return;
    expected.emplace_back(kind.class_name);
  }
  fail(Status::data, "{}: the class is {}, expected {}", config.file().string(), found.class_name,
       fmt::join(expected, " or "));
}

void check_classes(const ModelPaths& paths) {
  for (const ModelPart part : paths.parts()) {
    const Config config = Config::read(paths.folder(part) / "config.json");
    const NamedClass named = class_of_part(paths, part_folder(part), config);
    if (named.where == config.file()) continue;
    const std::string found = model_class(part, config);
    require(named.name == found, Status::data, "{}: the class is {}, expected {}, as {} says",
            config.file().string(), found, named.name, named.where);
  }
  const std::string tokenizer = class_in_index(paths, "tokenizer");
  if (tokenizer.empty() || paths.tokenizer != paths.root / "tokenizer") return;
  // The last two are the classes of tokenizers that have a tokenizer.json and no class of their
  // own, in transformers 4 and 5.
  const std::vector<std::string> known{"T5Tokenizer", "T5TokenizerFast", "PreTrainedTokenizerFast",
                                       "TokenizersBackend"};
  require(std::ranges::find(known, tokenizer) != known.end(), Status::data,
          "{}: tokenizer: found the class {}, expected {}",
          (paths.root / "model_index.json").string(), printable(tokenizer),
          fmt::join(known, " or "));
}

ExpectedShapes expected_tensors(ModelPart part, const Config& config) {
  return model_kind(part, config).all(config);
}

ExpectedShapes needed_tensors(ModelPart part, const Config& config) {
  return model_kind(part, config).needed(config);
}

bool takes_image(const Config& transformer) {
  const std::string name = model_class(ModelPart::transformer, transformer);
  if (name == "WanTransformer3DModel") return WanConfig::read(transformer).takes_image();
  return name == "CogVideoXTransformer3DModel" && CogVideoXConfig::read(transformer).takes_image();
}

bool needs(const Config& transformer, ModelPart part) {
  if (!model_folder(part).optional) return true;
  if (part != ModelPart::image_encoder) return false;  // model_index.json says whether there is one
  return model_class(ModelPart::transformer, transformer) == "WanTransformer3DModel" &&
         WanConfig::read(transformer).vision_channels > 0;
}

}  // namespace reelmesh
