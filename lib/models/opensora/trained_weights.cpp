#include "models/opensora/trained_weights.hpp"

#include "models/opensora/positions.hpp"

namespace reelmesh {
namespace {

void add_attention(TrainedWeights& weights, const std::string& name, const STDiTConfig& c) {
  weights.add_linear(name + ".qkv", c.hidden, 3 * c.hidden, true);
  weights.add_linear(name + ".proj", c.hidden, c.hidden, false);
  if (c.kind != STDiTConfig::Kind::v3) return;
  weights.add_vector(name + ".q_norm.weight", c.head_channels());
  weights.add_vector(name + ".k_norm.weight", c.head_channels());
}

void add_text_and_mlp(TrainedWeights& weights, const std::string& block, const STDiTConfig& c) {
  const std::int64_t d = c.hidden;
  weights.add_linear(block + ".cross_attn.q_linear", d, d, true);
  weights.add_linear(block + ".cross_attn.kv_linear", d, 2 * d, true);
  weights.add_linear(block + ".cross_attn.proj", d, d, false);
  weights.add_linear(block + ".mlp.fc1", d, c.mlp_hidden, true);
  weights.add_linear(block + ".mlp.fc2", c.mlp_hidden, d, false);
  weights.add_table(block + ".scale_shift_table", 6, d);
}

}  // namespace

TrainedWeights trained_weights(const STDiTConfig& c) {
  TrainedWeights weights;
  const std::int64_t d = c.hidden;
  const bool v3 = c.kind == STDiTConfig::Kind::v3;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    for (const char* kind : {"spatial", "temporal"}) {
      if (!v3) break;
      const std::string block = fmt::format("{}_blocks.{}", kind, i);
      add_attention(weights, block + ".attn", c);
      add_text_and_mlp(weights, block, c);
    }
    if (v3) continue;
    const std::string block = fmt::format("blocks.{}", i);
    add_attention(weights, block + ".attn", c);
    add_attention(weights, block + ".attn_temp", c);
    add_text_and_mlp(weights, block, c);
  }
  weights.add_linear("y_embedder.y_proj.fc1", c.text_channels, d, true);
  weights.add_linear("y_embedder.y_proj.fc2", d, d, true);
  weights.add_linear("t_embedder.mlp.0", number_channels, d, true);
  weights.add_linear("t_embedder.mlp.2", d, d, true);
  if (v3) {
    weights.add_linear("fps_embedder.mlp.0", number_channels, d, true);
    weights.add_linear("fps_embedder.mlp.2", d, d, true);
  }
  weights.add_linear("t_block.1", d, 6 * d, true);
  weights.add_linear("x_embedder.proj", c.patch_features(), d, true,
                     {d, c.in_channels, 1, c.patch.rows, c.patch.columns});
  weights.add_table("final_layer.scale_shift_table", 2, d);
  weights.add_linear("final_layer.linear", d, c.patch.rows * c.patch.columns * c.out_channels(),
                     false);
  return weights;
}

}  // namespace reelmesh
