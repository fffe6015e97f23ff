#include "models/cogvideox/transformer_backward.hpp"

#include <algorithm>
#include <cmath>

#include "base/interruption.hpp"
#include "base/trace.hpp"
#include "models/cogvideox/weight_gradients.hpp"
#include "ops/attention_backward.hpp"
#include "ops/norm_backward.hpp"
#include "ops/pointwise.hpp"
#include "ops/token_products.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {

// The backward pass of one size of clips on a group of ranks.
class CogVideoXGradients final : public Trainable::Prepared {
 public:
  /// weights: if all parameters are trained; otherwise null.
  CogVideoXGradients(const CogVideoXTransformer& model, const DenoiseTask& task,
                     const TrainedWeights* weights)
      : model_(model),
        placement_(model, task.group, task.layout.tokens, task.layout.text, 1,
                   task.layout.mesh.ring),
        columns_(task.group, {task.layout.text, task.layout.tokens}, model.config_.head_channels) {
    const CogVideoXConfig& config = model.config_;
    if (weights != nullptr) {
      weights_.emplace(*weights, config, task.group, columns_, task.layout.text, task.layout.tokens,
                       model.device());
    }
    if (!config.rotary) return;
    const Shape& grid = task.layout.tokens.global();
    const Device device = model.device();
    rotary_ = rotary_positions(config, grid, whole_box(grid), device.host());
    rotary_ = {rotary_.cosines.on(device), rotary_.sines.on(device)};
  }

  const TokenColumns& columns() const override { return columns_; }
  ops::ExactSum gradient_together(const TrainingSample& sample, const TakeGradient& take) override;
  ops::ExactSum losses_together(const TrainingSample& sample) override;

 private:
  using Block = CogVideoXTransformer::Block;
  // What the forward pass keeps of a block: its input and its modulation tables.
  struct Kept {
    Tensor z, table1, table2;
  };
  struct Attended {
    Tensor raw_q, raw_k, q, k, v;  // all tokens, this rank's heads: [token, 1, head, channel]
    ops::AttentionForward forward;
  };

  std::int64_t all() const { return placement_.all_tokens(); }
  std::int64_t texts() const { return own_box(placement_.text(), placement_.group()).numel(); }
  ops::FirstTokens first_tokens() const { return {texts(), video_chunks}; }
  float eps() const { return static_cast<float>(model_.config_.norm_eps); }
  Tensor product(const ops::Linear& layer, const Tensor& x) const {
    return layer(x, ops::Activation::none, all());
  }
  Tensor heads(const Tensor& columns) const {
    const std::int64_t channels = model_.config_.head_channels;
    return columns.reshape({columns.shape(0), 1, columns.shape(1) / channels, channels});
  }

  // What output_gradient() needs of the prediction.
  struct Predicted {
    Tensor video, normed, modulated, table;
    Tensor d;  // of the mean of the squares: float32 on the host
  };

  // Of the latents of the sample's image; none of a model that takes none.
  std::vector<Tensor> image_patches(const TrainingSample& sample) const;
  // kept: may be null.
  Tensor forward(const TrainingSample& sample, const Tensor& time, std::vector<Kept>* kept) const;
  // Adds up the squares.
  Predicted predict(const TrainingSample& sample, const Tensor& time, const Tensor& z);
  Tensor output_gradient(const TrainingSample& sample, const Tensor& time, const Tensor& z);
  Attended attend_again(const Tensor& q, const Tensor& keys_values) const;
  void block_backward(std::int64_t number, const Kept& kept, const Tensor& time, Tensor& dz);
  // The gradients of the layers before the blocks. dz: of what they give.
  void input_gradients(const TrainingSample& sample, const Tensor& sinusoid, const Tensor& dz);
  // The gradient of an adapter's matrices. x: all tokens, own columns of the layer's input; d: of
  // the outputs of each of its parts; hidden, d_hidden: own tokens.
  void collect(const Adapter& adapter, const Tensor& x, const std::vector<Tensor>& d,
               const Tensor& hidden, const Tensor& d_hidden) const;

  const CogVideoXTransformer& model_;
  CogVideoXPlacement placement_;
  TokenColumns columns_;
  RotaryTables rotary_;                     // of all video tokens, or empty
  std::optional<WeightGradients> weights_;  // if all parameters are trained
  // Of the present sample.
  const TakeGradient* take_ = nullptr;
  ops::ExactSum squares_;
};

std::vector<Tensor> CogVideoXGradients::image_patches(const TrainingSample& sample) const {
  const std::int64_t channels = model_.config_.image_channels();
  if (channels == 0) return {};
  Shape expected = sample.latents.shape();
  expected[1] = channels;
  expect(sample.image.shape() == expected, "latents {} of an image, expected {}",
         sample.image.shape(), expected);
  return {model_.patches(sample.image.on(model_.device()))};
}

// → the tokens after the last block.
Tensor CogVideoXGradients::forward(const TrainingSample& sample, const Tensor& time,
                                   std::vector<Kept>* kept) const {
  const Device device = model_.device();
  const Tensor latents = sample.latents.on(device);
  const std::vector<Tensor> images = image_patches(sample);
  Tensor z = model_.embed_tokens(placement_, {&latents, 1}, sample.text.on(device), images,
                                 Blocks::compute);
  const std::vector<Block>& blocks = model_.blocks_;
  CogVideoXTransformer::Modulated input;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    interruption_point();
    const trace::Mark mark(&trace::Recorder::layer, static_cast<int>(i));
    const trace::Scope scope(trace::spans::transformer_block);
    if (i == 0) {
      input.table = blocks[0].modulation1.with_all_rows(time);
      input.tokens = Tensor::empty(z.shape(), z.dtype(), z.device());
      ops::modulated_layer_norm(z, blocks[0].norm1.weight, blocks[0].norm1.bias, eps(),
                                {input.table, shift_chunk, scale_chunk, first_tokens()},
                                input.tokens);
    }
    Kept* block = kept == nullptr ? nullptr : &kept->emplace_back();
    if (block != nullptr) {
      block->z = z.clone();
      block->table1 = input.table;
    }
    const Block* next = i + 1 < blocks.size() ? &blocks[i + 1] : nullptr;
    Tensor* second_table = block == nullptr ? nullptr : &block->table2;
    input = model_.run_block(blocks[i], next, placement_, z, input, time, second_table);
  }
  return z;
}

// Computes the prediction from the last block's tokens, and adds up its squared error.
CogVideoXGradients::Predicted CogVideoXGradients::predict(const TrainingSample& sample,
                                                          const Tensor& time, const Tensor& z) {
  const Device device = model_.device(), host = device.host();
  const std::int64_t tokens = z.shape(0) - texts(), all_video = placement_.all_video_tokens();
  const Tensor video = z.rows(texts(), tokens);
  const Affine &norm_final = model_.norm_final_, &norm_out = model_.norm_out_;
  const Tensor table = model_.modulation_out_.with_all_rows(time);
  const ops::Modulation modulation{table, 0, 1, {}};
  const Tensor normed = ops::layer_norm(video, norm_final.weight, norm_final.bias, eps());
  Tensor modulated = Tensor::empty(normed.shape(), normed.dtype(), device);
  ops::modulated_layer_norm(normed, norm_out.weight, norm_out.bias, eps(), modulation, modulated);
  const Tensor features = model_.out_(modulated, ops::Activation::none, all_video);

  // The loss is computed on the host, in float32; squares are added exactly, token by token.
  Tensor d = features.on(host).to(DType::float32).clone();
  const Tensor target = ops::patchify(sample.target.on(host), model_.config_.patch, DType::float32);
  const std::int64_t size = features.shape().back();
  expect(target.numel() == d.numel(), "a target of {} for a prediction of {}", target.shape(),
         features.shape());
  if (!host.only_shapes) {
    const auto factor = static_cast<float>(2.0 / static_cast<double>(all_video * size));
    float* out = d.data<float>();
    for (std::int64_t token = 0; token < tokens; ++token) {
      double of_token = 0;
      for (std::int64_t i = token * size; i < (token + 1) * size; ++i) {
        const float difference = out[i] - target.data<float>()[i];
        of_token += double{difference} * double{difference};
        out[i] = factor * difference;
      }
      squares_.add(of_token);
    }
  }
  return {video, normed, modulated, table, d};
}

// → the gradient of the last block's tokens; that of the text is zero, since only the video's are
// used.
Tensor CogVideoXGradients::output_gradient(const TrainingSample& sample, const Tensor& time,
                                           const Tensor& z) {
  const auto [video, normed, modulated, table, d] = predict(sample, time, z);
  const Device device = model_.device();
  const std::int64_t tokens = video.shape(0), all_video = placement_.all_video_tokens();
  const Affine &norm_final = model_.norm_final_, &norm_out = model_.norm_out_;
  const ops::Modulation modulation{table, 0, 1, {}};
  const Tensor d_features = d.to(z.dtype()).on(device);
  const Tensor d_modulated = model_.out_backward_(d_features, ops::Activation::none, all_video);
  Tensor d_normed = Tensor::zeros(normed.shape(), normed.dtype(), device);
  ops::layer_norm_backward(normed, norm_out.weight, eps(), modulation, d_modulated, d_normed);
  if (weights_) {
    weights_->by_inputs("proj_out", weights_->video().to_columns(as_rows(modulated)),
                        weights_->video().gather(as_rows(d_features)));
    weights_->norm_together("norm_out.norm", norm_out, eps(), normed, d_modulated,
                            WeightGradients::Table::last, table);
    weights_->norm_together("norm_final", norm_final, eps(), video, d_normed, {}, {});
    weights_->finish_last_together(time, model_.modulation_out_backward_);
  }
  Tensor dz = Tensor::zeros(z.shape(), z.dtype(), device);
  Tensor of_video = dz.rows(texts(), tokens);
  ops::layer_norm_backward(video, norm_final.weight, eps(), {}, d_normed, of_video);
  return dz;
}

CogVideoXGradients::Attended CogVideoXGradients::attend_again(const Tensor& q,
                                                              const Tensor& keys_values) const {
  const std::int64_t d = model_.config_.channels();
  Attended result;
  result.raw_q = heads(columns_.to_columns(q));
  result.raw_k = heads(columns_.to_columns(column_range(keys_values, {0, d})));
  result.v = heads(columns_.to_columns(column_range(keys_values, {d, d})));
  return result;
}

void CogVideoXGradients::collect(const Adapter& adapter, const Tensor& x,
                                 const std::vector<Tensor>& d, const Tensor& hidden,
                                 const Tensor& d_hidden) const {
  const Device host = model_.device().host();
  const Tensor all_hidden = columns_.gather(as_rows(hidden));
  const Tensor down = ops::token_products(columns_.gather(as_rows(d_hidden)), x).on(host);
  for (const Adapter::Part& part : adapter.parts()) {
    const std::size_t of_layer =
        static_cast<std::size_t>(part.first_output) / static_cast<std::size_t>(adapter.outputs());
    const Tensor up =
        ops::token_products(column_range(all_hidden, {part.first_hidden, part.rank}), d[of_layer]);
    const std::size_t target = static_cast<std::size_t>(part.target);
    (*take_)(2 * target, down.rows(part.first_hidden, part.rank));
    (*take_)(2 * target + 1, ops::scaled(up, static_cast<float>(part.factor)).on(host));
  }
}

// dz: the gradient of the block's result, replaced by that of its input.
void CogVideoXGradients::block_backward(std::int64_t number, const Kept& kept, const Tensor& time,
                                        Tensor& dz) {
  using Table = WeightGradients::Table;
  const Block& block = model_.blocks_[static_cast<std::size_t>(number)];
  const CogVideoXConfig& config = model_.config_;
  // Nothing before the first block has a LoRA.
  const bool last_gradients = number == 0 && !weights_;
  const std::string name = fmt::format("transformer_blocks.{}.", number);
  const auto& [query, key_value, out, up, down] = block.adapters;
  const auto& back = block.backward;
  const std::int64_t d = config.channels(), tokens = kept.z.shape(0), rows = all();
  const Device device = model_.device();
  const ops::FirstTokens text = first_tokens();
  const ops::Modulation modulation1{kept.table1, shift_chunk, scale_chunk, text};
  const ops::Modulation modulation2{kept.table2, shift_chunk, scale_chunk, text};
  // A layer computed again, with the hidden values of its adapter.
  struct Again {
    Tensor result, hidden;
  };
  const auto again = [&](const ops::Linear& layer, const Adapter* adapter, const Tensor& x) {
    Again value{product(layer, x), {}};
    if (adapter != nullptr) {
      value.hidden = adapter->hidden(x, rows);
      adapter->add(value.hidden, value.result, rows);
    }
    return value;
  };

  // The block again, up to what its last product takes.
  Tensor input = Tensor::empty(kept.z.shape(), kept.z.dtype(), device);
  ops::modulated_layer_norm(kept.z, block.norm1.weight, block.norm1.bias, eps(), modulation1,
                            input);
  Again q = again(back.query_again, query, input);
  Again kv = again(back.key_value_again, key_value, input);
  Attended attended = attend_again(as_rows(q.result), as_rows(kv.result));
  q.result = kv.result = {};
  const std::int64_t all_texts = placement_.all_text_tokens();
  const auto rotated = [&](const Tensor& raw, const ops::HeadNorm& norm) {
    Tensor x = raw.clone();
    Tensor view = x.reshape({x.shape(0), 1, 1, x.shape(2), x.shape(3)});
    ops::normalise_and_rotate(view, norm, rotary_.cosines, rotary_.sines, all_texts);
    return x;
  };
  attended.q = rotated(attended.raw_q, block.query_norm);
  attended.k = rotated(attended.raw_k, block.key_norm);
  const float scale = 1.0F / std::sqrt(static_cast<float>(config.head_channels));
  attended.forward =
      ops::attention_forward(attended.q, attended.k, attended.v, scale, model_.numerics());
  const Tensor of_heads = attended.forward.out.reshape(
      {attended.q.shape(0), attended.q.shape(2) * attended.q.shape(3)});
  const Tensor attention = columns_.to_tokens(of_heads, d).reshape({tokens, 1, d});
  Again change = again(back.out_again, out, attention);
  Tensor z = kept.z.clone();
  Tensor normed = Tensor::empty(z.shape(), z.dtype(), device);
  ops::add_gated_and_norm(z, change.result, {kept.table1, gate_chunk, text}, block.norm2.weight,
                          block.norm2.bias, eps(), modulation2, normed);
  if (!weights_) change.result = {};
  const Again features = again(back.up_again, up, normed);

  // Feed-forward.
  {
    const Tensor d_change = ops::gated(dz, {kept.table2, gate_chunk, text});
    if (weights_) {
      const Tensor hidden = ops::gelu_tanh(features.result);
      weights_->gate_together(Table::second, product(back.down_again, hidden), dz);
      weights_->by_inputs(name + "ff.net.2", columns_.to_columns(as_rows(hidden)),
                          columns_.gather(as_rows(d_change)));
    }
    Tensor d_features = product(back.down, d_change);
    if (down != nullptr) {
      const Tensor hidden = ops::gelu_tanh(features.result);
      const Tensor d_hidden = down->hidden_gradient(d_change, rows);
      collect(*down, columns_.to_columns(as_rows(hidden)), {columns_.to_columns(as_rows(d_change))},
              down->hidden(hidden, rows), d_hidden);
      down->add_input_gradient(d_hidden, d_features, rows);
    }
    ops::gelu_tanh_backward(features.result, d_features);
    Tensor d_normed = product(back.up, d_features);
    if (weights_) {
      weights_->by_outputs(name + "ff.net.0.proj", columns_.gather(as_rows(normed)),
                           columns_.to_columns(as_rows(d_features)));
      weights_->norm_together(name + "norm2.norm", block.norm2, eps(), z, d_normed, Table::second,
                              kept.table2);
    }
    if (up != nullptr) {
      const Tensor d_hidden = up->hidden_gradient(d_features, rows);
      collect(*up, columns_.to_columns(as_rows(normed)), {columns_.to_columns(as_rows(d_features))},
              features.hidden, d_hidden);
      up->add_input_gradient(d_hidden, d_normed, rows);
    }
    ops::layer_norm_backward(z, block.norm2.weight, eps(), modulation2, d_normed, dz);
  }
  normed = z = {};

  // Attention.
  const Tensor d_change = ops::gated(dz, {kept.table1, gate_chunk, text});
  if (weights_) {
    weights_->gate_together(Table::first, change.result, dz);
    change.result = {};
    weights_->by_inputs(name + "attn1.to_out.0", of_heads, columns_.gather(as_rows(d_change)));
  }
  Tensor d_attention = product(back.out, d_change);
  if (out != nullptr) {
    const Tensor d_hidden = out->hidden_gradient(d_change, rows);
    collect(*out, of_heads, {columns_.to_columns(as_rows(d_change))}, change.hidden, d_hidden);
    out->add_input_gradient(d_hidden, d_attention, rows);
  }
  ops::AttentionGradients gradients = ops::attention_backward(
      attended.q, attended.k, attended.v, attended.forward,
      heads(columns_.to_columns(as_rows(d_attention))), scale, model_.numerics());
  d_attention = {};
  attended.q = attended.k = attended.v = {};
  attended.forward = {};
  const auto unrotated = [&](const Tensor& raw, const ops::HeadNorm& norm, Tensor& of_heads_) {
    const Shape shape{raw.shape(0), 1, 1, raw.shape(2), raw.shape(3)};
    Tensor view = of_heads_.reshape(shape);
    Tensor of_norm = weights_ ? Tensor::empty(shape, raw.dtype(), device) : Tensor();
    ops::normalise_and_rotate_backward(raw.reshape(shape), norm, rotary_.cosines, rotary_.sines,
                                       all_texts, view, weights_ ? &of_norm : nullptr);
    if (weights_) {
      weights_->head_norm(&norm == &block.query_norm, norm.eps, raw.reshape(shape), of_norm);
    }
    return view.reshape({raw.shape(0), raw.shape(2) * raw.shape(3)});
  };
  const Tensor dq = unrotated(attended.raw_q, block.query_norm, gradients.q);
  const Tensor dk = unrotated(attended.raw_k, block.key_norm, gradients.k);
  const Tensor dv = gradients.v.reshape(dk.shape());
  attended = {};
  if (weights_) {
    const Tensor all_inputs = columns_.gather(as_rows(input));
    weights_->by_outputs(name + "attn1.to_q", all_inputs, dq);
    weights_->by_outputs(name + "attn1.to_k", all_inputs, dk);
    weights_->by_outputs(name + "attn1.to_v", all_inputs, dv);
  }
  const auto to_tokens = [&](const Tensor& x) { return columns_.to_tokens(x, d); };
  const bool adapted = query != nullptr || key_value != nullptr;
  if (last_gradients && !adapted) return;
  const Tensor own_dq = to_tokens(dq).reshape({tokens, 1, d});
  const Tensor own_dkv = side_by_side(to_tokens(dk), to_tokens(dv)).reshape({tokens, 1, 2 * d});
  Tensor d_input;
  if (!last_gradients) {
    d_input = product(back.key_value, own_dkv);
    ops::add(d_input, product(back.query, own_dq));
  }
  const Tensor input_columns = adapted ? columns_.to_columns(as_rows(input)) : Tensor();
  const auto adapt = [&](const Adapter* adapter, const Tensor& hidden, const Tensor& own,
                         const std::vector<Tensor>& of_parts) {
    if (adapter == nullptr) return;
    const Tensor d_hidden = adapter->hidden_gradient(own, rows);
    collect(*adapter, input_columns, of_parts, hidden, d_hidden);
    if (!last_gradients) adapter->add_input_gradient(d_hidden, d_input, rows);
  };
  adapt(query, q.hidden, own_dq, {dq});
  adapt(key_value, kv.hidden, own_dkv, {dk, dv});
  if (last_gradients) return;
  if (weights_) {
    weights_->norm_together(name + "norm1.norm", block.norm1, eps(), kept.z, d_input, Table::first,
                            kept.table1);
    weights_->finish_block_together(name, time, back.modulation1, back.modulation2);
  }
  ops::layer_norm_backward(kept.z, block.norm1.weight, eps(), modulation1, d_input, dz);
}

void CogVideoXGradients::input_gradients(const TrainingSample& sample, const Tensor& sinusoid,
                                         const Tensor& dz) {
  const Device device = model_.device();
  const std::int64_t all_texts = placement_.all_text_tokens();
  const Tensor d = columns_.to_columns(as_rows(dz));
  weights_->by_outputs("patch_embed.text_proj",
                       weights_->text().gather(as_rows(sample.text.on(device))),
                       d.rows(0, all_texts));
  const Tensor latents = sample.latents.on(device);
  weights_->by_outputs(
      "patch_embed.proj",
      weights_->video().gather(as_rows(model_.input_patches({&latents, 1}, image_patches(sample)))),
      d.rows(all_texts, d.shape(0) - all_texts));
  const Tensor hidden = model_.time1_.with_all_rows(sinusoid), activated = ops::silu(hidden);
  Tensor time = model_.time2_.with_all_rows(activated);
  if (!model_.ofs_.empty()) ops::add(time, model_.ofs_);
  const Tensor d_time = weights_->of_time(time);
  weights_->embedding("time_embedding", sinusoid, hidden, activated, d_time,
                      model_.time2_backward_);
  if (model_.ofs_.empty()) return;
  const Tensor ofs = model_.ofs_sinusoid(), ofs_hidden = model_.ofs1_.with_all_rows(ofs);
  weights_->embedding("ofs_embedding", ofs, ofs_hidden, ops::silu(ofs_hidden), d_time,
                      model_.ofs2_backward_);
}

ops::ExactSum CogVideoXGradients::gradient_together(const TrainingSample& sample,
                                                    const TakeGradient& take) {
  take_ = &take;
  squares_ = {};
  if (weights_) weights_->begin(take);
  const Tensor sinusoid = model_.embed(sample.timestep);
  const Tensor time = model_.time_embedding(sinusoid);
  std::vector<Kept> kept;
  Tensor dz;
  {
    const Tensor z = forward(sample, time, &kept);
    dz = output_gradient(sample, time, z);
  }
  for (std::size_t i = model_.blocks_.size(); i-- > 0;) {
    interruption_point();
    const trace::Mark mark(&trace::Recorder::layer, static_cast<int>(i));
    const trace::Scope scope(trace::spans::transformer_block);
    block_backward(static_cast<std::int64_t>(i), kept[i], time, dz);
    kept.pop_back();
  }
  if (weights_) input_gradients(sample, sinusoid, dz);
  return squares_;
}

ops::ExactSum CogVideoXGradients::losses_together(const TrainingSample& sample) {
  squares_ = {};
  const Tensor time = model_.time_embedding(model_.embed(sample.timestep));
  predict(sample, time, forward(sample, time, nullptr));
  return squares_;
}

std::vector<BlockAdapters> CogVideoXTrainable::make_adapters(const LoraShape& lora) {
  const std::int64_t d = config_.channels();
  std::vector<BlockAdapters> blocks(static_cast<std::size_t>(config_.layers));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto adapter = [&](const std::vector<std::string>& names, std::int64_t in,
                             std::int64_t out) -> const Adapter* {
      std::vector<int> parts;
      for (const std::string& name : names) {
        parts.push_back(-1);
        const std::optional<LoraTarget> target =
            lora.target(fmt::format("transformer_blocks.{}.{}", i, name), in, out);
        if (!target) continue;
        parts.back() = static_cast<int>(targets_.size());
        targets_.push_back(*target);
        lora_matrices_.push_back({target->module + ".lora_A", target->rank, in});
        lora_matrices_.push_back({target->module + ".lora_B", target->rank, out});
      }
      if (std::ranges::count(parts, -1) == std::ssize(parts)) return nullptr;
      adapters_.push_back(std::make_unique<Adapter>(parts, targets_, in, out, dtype_,
                                                    checkpoint_.device(), checkpoint_.numerics()));
      return adapters_.back().get();
    };
    BlockAdapters& block = blocks[i];
    block.query = adapter({"attn1.to_q"}, d, d);
    block.key_value = adapter({"attn1.to_k", "attn1.to_v"}, d, d);
    block.out = adapter({"attn1.to_out.0"}, d, d);
    block.up = adapter({"ff.net.0.proj"}, d, 4 * d);
    block.down = adapter({"ff.net.2"}, 4 * d, d);
  }
  require(!targets_.empty(), Status::usage,
          "lora.targets: no layer of the model ends with any of them, expected to_q, to_k, to_v, "
          "to_out.0, ff.net.0.proj or ff.net.2");
  lora.require_patterns_used(targets_);
  return blocks;
}

CogVideoXTrainable::CogVideoXTrainable(const Checkpoint& weights, const CogVideoXConfig& config,
                                       DType dtype, const WeightPlacement& placement,
                                       const std::optional<LoraShape>& lora)
    : checkpoint_(weights), config_(config), dtype_(dtype), placement_(placement) {
  if (lora) {
    model_.emplace(weights, config, dtype, placement, make_adapters(*lora));
  } else {
    weights_.emplace(trained_weights(config));
    model_.emplace(weights, config, dtype, placement, std::span<const BlockAdapters>(), true);
  }
}

void CogVideoXTrainable::set_together(const MatrixValues& values) {
  if (!weights_) {
    const std::vector<Tensor> all = values(0, lora_matrices_.size());
    std::vector<LoraValues> of_targets;
    for (std::size_t i = 0; i < all.size(); i += 2) of_targets.push_back({all[i], all[i + 1]});
    for (const auto& adapter : adapters_) adapter->set(of_targets);
    return;
  }
  const PurposeScope purpose(Purpose::weights);
  model_.reset();  // so that there is only one at a time
  model_.emplace(weights_->with_values(checkpoint_, values), config_, dtype_, placement_,
                 std::span<const BlockAdapters>(), true);
}

std::unique_ptr<Trainable::Prepared> CogVideoXTrainable::prepare(const DenoiseTask& task) const {
  return std::make_unique<CogVideoXGradients>(*model_, task, weights_ ? &*weights_ : nullptr);
}

}  // namespace reelmesh
