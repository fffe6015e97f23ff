#include "models/checkpoints/random_model.hpp"

#include <cmath>
#include <cstring>

#include "models/common/random_weights.hpp"
#include "models/t5/t5.hpp"
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

// Factors in addition to 1/√inputs, tuned by looking at the clips. They set the size of residual
// updates and modulations, the sharpness of attention and the contrast of pictures.
std::vector<Gain> part_gains(ModelPart part, const T5Config& t5) {
  switch (part) {
    case ModelPart::transformer:
    case ModelPart::transformer_2:
      return {{"text_proj", 1.5},
              {"to_out", 1.5},
              {"norm1.linear", 0.7},
              {"norm2.linear", 0.7},
              {"ff.net.2", 1.3},
              {"norm_out.linear", 0.7},
              {"proj_out", 0.7},
              {"time_proj", 0.7},
              // Open-Sora's; its samplers amplify the predictions of an untrained model.
              {"x_embedder", 3.0},
              {"t_block", 0.7},
              {"fps_embedder.mlp.2", 0.7},
              {".qkv.", 1.5},
              {"q_linear", 2.0},
              {"final_layer.linear", 0.05}};
    case ModelPart::vae:
      return {{"conv_y", 0.15}, {"conv_b", 0.25}, {"decoder.conv_out", 0.7}};
    case ModelPart::text_encoder:
      // T5 does not divide scores by √d_kv, so the query weights are smaller.
      return {{"SelfAttention.q.", 1.4 / std::sqrt(static_cast<double>(t5.d_kv))},
              {"DenseReluDense.wo", 1.3}};
    case ModelPart::image_encoder:
      return {};
  }
  return {};
}

Spread weight_spread(const std::string& name, const Shape& shape, const std::vector<Gain>& gains) {
  // The scale of a spatial norm is around one; otherwise the signal would vanish.
  if (name.ends_with("conv_y.conv.bias")) return {1.0F, 0.1F};
  if (name.ends_with("bias")) return {0.0F, 0.1F};
  // Weights above one make attention sharper, so that it does not average out the prompt.
  if (ends_with_any(name, {"norm_q.weight", "norm_k.weight", "norm_added_k.weight", "q_norm.weight",
                           "k_norm.weight"}))
    return {1.5F, 0.15F};
  if (ends_with_any(name, {"class_embedding", "position_embedding.weight", ".pos_embed"})) {
    return {0.0F, 0.5F};
  }
  if (shape.size() == 1 || name.ends_with("gamma")) return {1.0F, 0.1F};  // weights of norms
  if (shape.size() == 3 && name.ends_with("scale_shift_table")) return {0.0F, 0.2F};  // Wan
  if (ends_with_any(name, {"shared.weight", "relative_attention_bias.weight", "y_embedding"})) {
    return {0.0F, 1.0F};
  }
  if (name.ends_with("pos_embedding")) return {0.0F, 0.5F};  // as sines and cosines
  double inputs = 1, factor = 1;
  for (std::size_t axis = 1; axis < shape.size(); ++axis) {
    inputs *= static_cast<double>(shape[axis]);
  }
  for (const Gain& gain : gains) {
    if (name.find(gain.part_of_name) != name.npos) factor = gain.factor;
  }
  return {0.0F, static_cast<float>(factor / std::sqrt(inputs))};
}

// Tensors that are not random: rotary frequencies (radians per frame, one per pair of channels),
// and `scale` and `shift`, which Open-Sora 1.2's autoencoder has both in config.json and among its
// weights. Empty for all other tensors.
std::vector<float> constant_values(const std::string& name, const Shape& shape,
                                   const nlohmann::json& config) {
  if (name == "scale" || name == "shift") return config.at(name).get<std::vector<float>>();
  std::vector<float> values;
  if (name != "rope.freqs") return values;
  const auto n = static_cast<double>(numel(shape));
  for (std::int64_t i = 0; i < numel(shape); ++i) {
    values.push_back(static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / n)));
  }
  return values;
}

Config parsed(const ModelPreset& preset, ModelPart part) {
  return Config::parse(preset.parts.at(part).dump(), preset.name + "/" + part_folder(part));
}

}  // namespace

PartSize part_size(const ModelPreset& preset, ModelPart part, DType dtype) {
  PartSize size;
  for (const auto& [name, shape] : expected_tensors(part, parsed(preset, part))) {
    ++size.tensors;
    size.parameters += numel(shape);
  }
  size.bytes = size.parameters * size_of(dtype);
  return size;
}

void write_random_part(const ModelPreset& preset, ModelPart part, DType dtype, std::uint64_t seed,
                       const std::filesystem::path& model, Flush flush) {
  const std::filesystem::path folder = model / part_folder(part);
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, shape] : expected_tensors(part, parsed(preset, part))) {
    tensors.push_back({name, dtype, shape});
  }
  const T5Config t5 = T5Config::read(parsed(preset, ModelPart::text_encoder));
  const std::vector<Gain> gains = part_gains(part, t5);
  const FillTensor fill = [&](std::size_t i, Tensor& out) {
    const std::string& name = tensors[i].name;
    const std::vector<float> constants = constant_values(name, out.shape(), preset.parts.at(part));
    if (!constants.empty()) {
      const Tensor values = Tensor::of<float>(constants, out.shape()).to(out.dtype());
      std::memcpy(out.raw(), values.raw(), static_cast<std::size_t>(values.bytes()));
      return;
    }
    fill_random(out, part_folder(part) + ("/" + name), seed,
                weight_spread(name, out.shape(), gains));
  };
  write_safetensors(folder, weights_stem(part), tensors, fill, max_shard_bytes, flush);
  write_json(folder / "config.json", preset.parts.at(part), flush);
}

void write_configs(const ModelPreset& preset, const std::filesystem::path& model, Flush flush) {
  for (const auto& [part, config] : preset.parts) {
    write_json(model / part_folder(part) / "config.json", config, flush);
  }
  if (!preset.image_processor.is_null()) {
    write_json(model / "image_processor" / "preprocessor_config.json", preset.image_processor,
               flush);
  }
  write_json(model / "scheduler" / "scheduler_config.json", preset.scheduler, flush);
  write_json(model / "model_index.json", preset.model_index, flush);
}

void write_json(const std::filesystem::path& file, const nlohmann::json& value, Flush flush) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  require(!error, Status::cannot_create, "{}: cannot be created: {}", file.parent_path().string(),
          error.message());
  NewFile out(file, flush);
  out.write(value.dump(2) + "\n");
  out.commit();
}

}  // namespace reelmesh
