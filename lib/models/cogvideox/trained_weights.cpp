#include "models/cogvideox/trained_weights.hpp"

namespace reelmesh {

TrainedWeights trained_weights(const CogVideoXConfig& c) {
  TrainedWeights weights;
  const std::int64_t d = c.channels(), t = c.time_channels;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string block = fmt::format("transformer_blocks.{}.", i);
    weights.add_linear(block + "attn1.to_q", d, d, true);
    weights.add_linear(block + "attn1.to_k", d, d, true);
    weights.add_linear(block + "attn1.to_v", d, d, true);
    weights.add_linear(block + "attn1.to_out.0", d, d, false);
    weights.add_linear(block + "ff.net.0.proj", d, 4 * d, true);
    weights.add_linear(block + "ff.net.2", 4 * d, d, false);
    weights.add_norm(block + "attn1.norm_q", c.head_channels);
    weights.add_norm(block + "attn1.norm_k", c.head_channels);
    weights.add_norm(block + "norm1.norm", d);
    weights.add_norm(block + "norm2.norm", d);
    weights.add_linear(block + "norm1.linear", t, 6 * d, true);
    weights.add_linear(block + "norm2.linear", t, 6 * d, true);
  }
  weights.add_linear("time_embedding.linear_1", d, t, false);
  weights.add_linear("time_embedding.linear_2", t, t, false);
  if (c.ofs_channels > 0) {
    weights.add_linear("ofs_embedding.linear_1", c.ofs_channels, t, false);
    weights.add_linear("ofs_embedding.linear_2", t, t, false);
  }
  weights.add_linear("patch_embed.text_proj", c.text_channels, d, true);
  Shape patch{d, c.patch_features()};
  if (!c.linear_patch) patch = {d, c.in_channels, c.patch.rows, c.patch.columns};
  weights.add_linear("patch_embed.proj", c.patch_features(), d, true, patch);
  weights.add_norm("norm_final", d);
  weights.add_linear("norm_out.linear", t, 2 * d, true);
  weights.add_norm("norm_out.norm", d);
  const std::int64_t features = c.out_channels * c.patch.frames * c.patch.rows * c.patch.columns;
  weights.add_linear("proj_out", d, features, false);
  return weights;
}

}  // namespace reelmesh
