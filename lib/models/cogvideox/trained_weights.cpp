#include "models/cogvideox/trained_weights.hpp"

namespace reelmesh {

TrainedWeights::TrainedWeights(const CogVideoXConfig& c) {
  const std::int64_t d = c.channels(), t = c.time_channels;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string block = fmt::format("transformer_blocks.{}.", i);
    add_linear(block + "attn1.to_q", d, d, true);
    add_linear(block + "attn1.to_k", d, d, true);
    add_linear(block + "attn1.to_v", d, d, true);
    add_linear(block + "attn1.to_out.0", d, d, false);
    add_linear(block + "ff.net.0.proj", d, 4 * d, true);
    add_linear(block + "ff.net.2", 4 * d, d, false);
    add_norm(block + "attn1.norm_q", c.head_channels);
    add_norm(block + "attn1.norm_k", c.head_channels);
    add_norm(block + "norm1.norm", d);
    add_norm(block + "norm2.norm", d);
    add_linear(block + "norm1.linear", t, 6 * d, true);
    add_linear(block + "norm2.linear", t, 6 * d, true);
  }
  add_linear("time_embedding.linear_1", d, t, false);
  add_linear("time_embedding.linear_2", t, t, false);
  add_linear("patch_embed.text_proj", c.text_channels, d, true);
  Shape patch{d, c.patch_features()};
  if (!c.linear_patch) patch = {d, c.in_channels, c.patch.rows, c.patch.columns};
  add_linear("patch_embed.proj", c.patch_features(), d, true, patch);
  add_norm("norm_final", d);
  add_linear("norm_out.linear", t, 2 * d, true);
  add_norm("norm_out.norm", d);
  const std::int64_t features = c.out_channels * c.patch.frames * c.patch.rows * c.patch.columns;
  add_linear("proj_out", d, features, false);
}

void TrainedWeights::add_linear(const std::string& name, std::int64_t in, std::int64_t out,
                                bool by_outputs, Shape shape) {
  if (shape.empty()) shape = {out, in};
  add({name + ".weight", out, in, by_outputs}, std::move(shape));
  add({name + ".bias", 1, out}, {out});
}

void TrainedWeights::add_norm(const std::string& name, std::int64_t channels) {
  for (const char* part : {".weight", ".bias"}) add({name + part, 1, channels}, {channels});
}

void TrainedWeights::add(TrainedMatrix matrix, Shape shape) {
  by_name_.emplace(matrix.name, matrices_.size());
  matrices_.push_back(std::move(matrix));
  shapes_.push_back(std::move(shape));
}

}  // namespace reelmesh
