#include "models/cogvideox/random_model.hpp"

#include <cmath>

#include "models/common/random_weights.hpp"
#include "weights/new_file.hpp"
#include "weights/writer.hpp"

namespace reelmesh {
namespace {

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
  for (const std::string_view end : ends) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

struct Gain {
  std::string_view part_of_name;
  double factor;
};

// Factors beside 1/√inputs, found by looking at the clips: outputs that are added to a residual
// stream, modulations, the sharpness of attention, the contrast of pictures.
std::vector<Gain> gains_of(CogVideoXPart part, const T5Config& t5) {
  switch (part) {
    case CogVideoXPart::transformer:
      return {{"text_proj", 1.5},    {"to_out", 1.5},   {"norm1.linear", 0.7},
              {"norm2.linear", 0.7}, {"ff.net.2", 1.3}, {"norm_out.linear", 0.7},
              {"proj_out", 0.7}};
    case CogVideoXPart::vae:
      return {{"conv_y", 0.15}, {"conv_b", 0.25}, {"decoder.conv_out", 0.7}};
    case CogVideoXPart::text_encoder:
      // T5 does not divide scores by √d_kv: the query's weights are small instead.
      return {{"SelfAttention.q.", 1.4 / std::sqrt(static_cast<double>(t5.d_kv))},
              {"DenseReluDense.wo", 1.3}};
  }
  return {};
}

Spread spread_of(const std::string& name, const Shape& shape, const std::vector<Gain>& gains) {
  // The factor of a spatial norm is around one, or the signal would die on its way.
  if (name.ends_with("conv_y.conv.bias")) return {1.0F, 0.1F};
  if (name.ends_with("bias")) return {0.0F, 0.1F};
  // Attention that is sharper than that of even norms does not average the prompt away.
  if (ends_with_any(name, {"norm_q.weight", "norm_k.weight"})) return {1.5F, 0.15F};
  if (shape.size() == 1) return {1.0F, 0.1F};  // weights of norms
  if (ends_with_any(name, {"shared.weight", "relative_attention_bias.weight"})) return {0.0F, 1.0F};
  double inputs = 1, factor = 1;
  for (std::size_t axis = 1; axis < shape.size(); ++axis) {
    inputs *= static_cast<double>(shape[axis]);
  }
  for (const Gain& gain : gains) {
    if (name.find(gain.part_of_name) != name.npos) factor = gain.factor;
  }
  return {0.0F, static_cast<float>(factor / std::sqrt(inputs))};
}

Config parsed(const CogVideoXPreset& preset, CogVideoXPart part) {
  return Config::parse(config_of(preset, part).dump(), preset.name + "/" + folder_of(part));
}

}  // namespace

const nlohmann::json& config_of(const CogVideoXPreset& preset, CogVideoXPart part) {
  return part == CogVideoXPart::transformer ? preset.transformer
         : part == CogVideoXPart::vae       ? preset.vae
                                            : preset.text_encoder;
}

PartSize size_of(const CogVideoXPreset& preset, CogVideoXPart part, DType dtype) {
  PartSize size;
  for (const auto& [name, shape] : tensors_of(part, parsed(preset, part))) {
    ++size.tensors;
    size.parameters += numel(shape);
  }
  size.bytes = size.parameters * size_of(dtype);
  return size;
}

void write_random_part(const CogVideoXPreset& preset, CogVideoXPart part, DType dtype,
                       std::uint64_t seed, const std::filesystem::path& model) {
  const std::filesystem::path folder = model / folder_of(part);
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, shape] : tensors_of(part, parsed(preset, part))) {
    tensors.push_back({name, dtype, shape});
  }
  const T5Config t5 = T5Config::read(parsed(preset, CogVideoXPart::text_encoder));
  const std::vector<Gain> gains = gains_of(part, t5);
  write_safetensors(folder, stem_of(part), tensors, [&](std::size_t i, Tensor& out) {
    const std::string& name = tensors[i].name;
    fill_random(out, folder_of(part) + ("/" + name), seed, spread_of(name, out.shape(), gains));
  });
  write_json(folder / "config.json", config_of(preset, part));
}

void write_json(const std::filesystem::path& file, const nlohmann::json& value) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  require(!error, Status::cannot_create, "{}: cannot be created: {}", file.parent_path().string(),
          error.message());
  const std::string text = value.dump(2) + "\n";
  NewFile out(file);
  out.write(text.data(), text.size());
  out.commit();
}

}  // namespace reelmesh
