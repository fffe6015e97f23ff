#include "models/clip/vision.hpp"

#include <array>
#include <cmath>

#include "models/common/asked.hpp"
#include "ops/attention.hpp"
#include "ops/norm.hpp"
#include "ops/pointwise.hpp"
#include "ops/rows.hpp"

namespace reelmesh {
namespace {

constexpr const char* model = "vision_model.";

}  // namespace

ClipVision::ClipVision(const Checkpoint& weights, const ClipVisionConfig& c, std::int64_t layers,
                       DType dtype)
    : config_(c), dtype_(dtype), device_(weights.device()), numerics_(weights.numerics()) {
  const std::int64_t d = c.channels, size = c.patch_size;
  const std::string embeddings = fmt::format("{}embeddings.", model);
  class_token_ = weights.load(embeddings + "class_embedding", {d}, dtype).reshape({1, 1, d});
  positions_ = weights.load(embeddings + "position_embedding.weight", {c.rows(), d}, dtype);
  patch_ =
      ops::Linear(weights.load(embeddings + "patch_embedding.weight", {d, 3, size, size}, dtype)
                      .reshape({d, 3 * size * size}),
                  Tensor(), weights.numerics());
  first_norm_ = load_affine(weights, fmt::format("{}pre_layrnorm", model), d, dtype);
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string name = fmt::format("{}encoder.layers.{}.", model, i);
    const std::string attention = name + "self_attn.";
    Layer& layer = layers_.emplace_back();
    layer.attention_norm = load_affine(weights, name + "layer_norm1", d, dtype);
    layer.qkv = load_linears(
        weights, {attention + "q_proj", attention + "k_proj", attention + "v_proj"}, d, d, dtype);
    layer.out = load_linear(weights, attention + "out_proj", d, d, dtype);
    layer.hidden_norm = load_affine(weights, name + "layer_norm2", d, dtype);
    layer.up = load_linear(weights, name + "mlp.fc1", d, c.hidden_channels, dtype);
    layer.down = load_linear(weights, name + "mlp.fc2", c.hidden_channels, d, dtype);
  }
}

ExpectedShapes ClipVision::all_tensors(const ClipVisionConfig& config) {
  ExpectedShapes all = tensors_of<ClipVision>(config, config.layers);
  for (const char* part : {"weight", "bias"}) {
    all[fmt::format("{}post_layernorm.{}", model, part)] = {config.channels};
  }
  return all;
}

Tensor ClipVision::normed(const Tensor& x, const Affine& norm) const {
  return ops::layer_norm(x, norm.weight, norm.bias, static_cast<float>(config_.norm_eps));
}

Tensor ClipVision::embed(const Tensor& pixels) const {
  const std::int64_t rows = config_.rows(), d = config_.channels, heads = config_.heads;
  expect(pixels.shape() == Shape{1, 3, config_.image_size, config_.image_size},
         "pixels {} of an image for a model of {} x {}", pixels.shape(), config_.image_size,
         config_.image_size);
  const ops::Patch patch{1, config_.patch_size, config_.patch_size};
  const Tensor patches = patch_.with_all_rows(ops::patchify(pixels.on(device_), patch, dtype_));
  const std::array<Tensor, 2> tokens{class_token_, patches.reshape({rows - 1, 1, d})};
  Tensor x = ops::join_rows(tokens);
  ops::add_table(x, positions_);
  x = normed(x, first_norm_);
  const float scale = 1.0F / std::sqrt(static_cast<float>(d / heads));
  for (const Layer& layer : layers_) {
    const Tensor qkv = layer.qkv.with_all_rows(normed(x, layer.attention_norm));
    const Tensor attended =
        ops::attention(qkv.reshape({rows, 1, 3, heads, d / heads}), scale, {}, numerics_);
    ops::add(x, layer.out.with_all_rows(attended.reshape({rows, 1, d})));
    const Tensor hidden = ops::gelu(layer.up.with_all_rows(normed(x, layer.hidden_norm)));
    ops::add(x, layer.down.with_all_rows(hidden));
  }
  return x.reshape({rows, d}).on(device_.host());
}

}  // namespace reelmesh
