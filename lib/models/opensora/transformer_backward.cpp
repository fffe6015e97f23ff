#include "models/opensora/transformer_backward.hpp"

#include <algorithm>
#include <cmath>

#include "base/interruption.hpp"
#include "base/trace.hpp"
#include "models/common/layer_gradients.hpp"
#include "ops/attention_backward.hpp"
#include "ops/norm_backward.hpp"
#include "ops/pointwise.hpp"
#include "ops/token_products.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {
namespace {

// x [row, channel · pixel], channels first → the order of the checkpoint's last layer.
Tensor channels_last(const Tensor& x, std::int64_t channels) {
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  const std::int64_t features = x.shape(1), pixels = features / channels;
  for (std::int64_t i = 0; i < x.numel() && !x.device().only_shapes; ++i) {
    const std::int64_t row = i / features, f = i % features;
    out.data<float>()[row * features + f % pixels * channels + f / pixels] = x.data<float>()[i];
  }
  return out;
}

}  // namespace

// The backward pass of one size of clips on a group of ranks.
class STDiTGradients final : public Trainable::Prepared {
 public:
  STDiTGradients(const STDiT& model, const DenoiseTask& task, const TrainedWeights& weights,
                 const std::optional<IddpmLoss>& loss);

  const TokenColumns& columns() const override { return frames_; }
  ops::ExactSum gradient_together(const TrainingSample& sample, const TakeGradient& take) override;
  ops::ExactSum losses_together(const TrainingSample& sample) override;

 private:
  using Block = STDiT::Block;
  using Attention = STDiT::Attention;
  static constexpr ops::Activation none = ops::Activation::none;

  // The caption on its way to the blocks; every rank has all of it.
  struct Caption {
    Tensor text, hidden, activated, result;  // [token, 1, channel]; hidden: before the activation
    STDiTContext context;
  };
  // Parts of a block, computed again. x: the stream before it, [token, 1, channel].
  struct SelfAttention {
    Tensor x, input;
    Tensor raw_q, raw_k;  // before norm and rotation, [token, batch, 1, head, channel]
    Tensor q, k, v;       // of whole sequences
    ops::AttentionForward forward;
    Tensor attended, change;  // own tokens, before and after the last product
  };
  struct TextAttention {
    Tensor x, q, k, v;  // q, k, v: all tokens, own heads
    ops::AttentionForward forward;
  };
  struct Mlp {
    Tensor x, normed, features, hidden, change;
  };
  // Of self-attention within frames, or along time: how its sequences are computed.
  struct Sequences {
    bool in_time;
    const TokenColumns& tokens;
    Tensor cosines, sines;
  };

  std::int64_t all() const { return placement_.all_tokens(); }
  std::int64_t hidden() const { return model_.config_.hidden; }
  bool v3() const { return model_.config_.kind == STDiTConfig::Kind::v3; }
  Tensor stream(const Tensor& rows) const { return rows.reshape({rows.shape(0), 1, hidden()}); }
  Tensor product(const ops::Linear& layer, const Tensor& x) const { return layer(x, none, all()); }
  // Into how many sequences attention's tokens are divided: along time positions are batch items.
  std::int64_t sequences(const Sequences& how) const {
    const std::int64_t frames = to_heads_ ? placement_.in_heads_[0] : placement_.frames();
    return how.in_time ? 1 : std::max<std::int64_t>(frames, 1);
  }
  Sequences in_space() const { return {false, frames_, {}, {}}; }
  Sequences in_time() const {
    return {true, positions_, placement_.rotation_.cosines, placement_.rotation_.sines};
  }

  Caption encode(const TrainingSample& sample) const;
  Tensor forward(const TrainingSample& sample, const Caption& caption, const Tensor& time,
                 std::vector<Tensor>* kept) const;
  // What output_gradient() needs of the prediction.
  struct Predicted {
    Tensor modulated, table;
    Tensor d;  // of the mean of the losses: float32 [token, feature] on the host
  };
  Predicted predict(const TrainingSample& sample, const Tensor& time, const Tensor& x);
  Tensor output_gradient(const TrainingSample& sample, const Tensor& time, const Tensor& x);

  Tensor exchanged(const std::optional<Exchange>& exchange, const Tensor& x,
                   const Shape& shape) const;
  Tensor whole_frames(const Tensor& x) const;
  Tensor own_tokens(const Tensor& x) const;
  SelfAttention attend_again(const Attention& layer, const Sequences& how, const Tensor& x,
                             const Tensor& input) const;
  TextAttention attend_to_text_again(const Attention& layer, const Caption& caption,
                                     std::size_t index, Tensor& x) const;
  Mlp mlp_again(const Block& block, const Tensor& table, Tensor& x) const;

  void pair_backward(std::size_t index, Tensor in, const Caption& caption, const Tensor& time,
                     Tensor& dx);
  // dx: the gradient of the stream after a part, replaced by that of the stream before it.
  // → of self-attention the gradient of its input.
  Tensor self_attention_backward(const std::string& name, const Attention& layer,
                                 const Sequences& how, const SelfAttention& part,
                                 const Tensor& table, Tensor& dx);
  void text_attention_backward(const std::string& name, const Attention& layer,
                               const Caption& caption, const TextAttention& part, Tensor& dx);
  void mlp_backward(const std::string& name, const Block& block, const Mlp& part,
                    const Tensor& table, Tensor& dx);
  void head_norm(const std::string& name, const Tensor& raw, const Tensor& d,
                 const TokenColumns& tokens);
  // Adds the sums over tokens that shift and scale of a norm get, and what passes through it.
  void modulation_backward(const TokenColumns& tokens, const Tensor& x, const Tensor& d,
                           const Tensor& table, int shift, Tensor& sums, Tensor& dx) const;
  void gate_backward(const TokenColumns& tokens, const Tensor& change, const Tensor& dx, int gate);
  void finish_block(const std::string& block);
  void finish(const TrainingSample& sample, const Caption& caption, const Tensor& sinusoid,
              const Tensor& time, const Tensor& dx);
  void embedder_gradients(const std::string& module, const Tensor& sinusoid,
                          const ops::Linear& first, const ops::Linear& second_backward,
                          const Tensor& d) const;

  const STDiT& model_;
  STDiTPlacement placement_;
  TokenColumns frames_, positions_;  // of the tokens while frames are cut, and positions
  std::optional<Exchange> to_heads_, to_tokens_;  // none if ranks have whole frames
  LayerGradients weights_;
  const std::optional<IddpmLoss>& loss_;
  Device host_;
  Tensor unit_weight_;  // ones, float32 [head channel]
  // Of the present sample.
  ops::ExactSum losses_;
  Tensor of_block_, of_blocks_;  // float32 [6, own channel]: modulation tables, of all blocks
  Tensor of_time_;               // float32 [1, channel]: of the embedding, by the last layer
  Tensor of_caption_;            // as Caption::result
};

STDiTGradients::STDiTGradients(const STDiT& model, const DenoiseTask& task,
                               const TrainedWeights& weights, const std::optional<IddpmLoss>& loss)
    : model_(model),
      placement_(model, task.group, SpaceTime::of(task.layout, model.config().heads),
                 stdit_clip(task), 1, 1),
      frames_(task.group, {placement_.layouts_.spatial}, model.config().head_channels()),
      positions_(task.group, {placement_.layouts_.temporal}, model.config().head_channels()),
      weights_(weights, task.group, frames_, model.device()),
      loss_(loss),
      host_(model.device().host()),
      unit_weight_(model.ones_.rows(0, model.config().head_channels())) {
  const std::int64_t own = frames_.own_columns(hidden()).count;
  of_block_ = Tensor::zeros({table_chunks, own}, DType::float32, host_);
  of_blocks_ = of_block_.clone();
  if (placement_.layouts_.frames_are_whole()) return;
  const auto& [tokens, heads] = *placement_.layouts_.by_heads;
  const std::int64_t channels = model.config().head_channels();
  const Move move{tokens.with_axis(3, channels), heads.with_axis(3, channels)};
  to_heads_.emplace(task.group, std::vector<Move>{move});
  to_tokens_.emplace(task.group, std::vector<Move>{{move.to, move.from}});
}

STDiTGradients::Caption STDiTGradients::encode(const TrainingSample& sample) const {
  Caption caption;
  const std::int64_t tokens = sample.text.shape(0), channels = model_.config_.text_channels;
  caption.text = (sample.drops_caption ? model_.null_caption_.rows(0, tokens)
                                       : sample.text.on(model_.device()))
                     .reshape({tokens, 1, channels});
  caption.hidden = model_.caption1_.with_all_rows(caption.text);
  caption.activated = ops::gelu_tanh(caption.hidden);
  caption.result = model_.caption2_.with_all_rows(caption.activated);
  const auto add = [&](const Block& block) {
    caption.context.keys_values.push_back(
        model_.projected_heads(block.text.key_value, caption.result, tokens));
  };
  for (const STDiT::Pair& pair : model_.pairs_) {
    add(pair.spatial);
    if (v3()) add(pair.temporal);
  }
  return caption;
}

// → the tokens after the last block.
Tensor STDiTGradients::forward(const TrainingSample& sample, const Caption& caption,
                               const Tensor& time, std::vector<Tensor>* kept) const {
  const Tensor latents = sample.latents.on(model_.device());
  Tensor x = model_.embed_tokens(placement_, {&latents, 1}, 1);
  const Tensor of_blocks = model_.block_time(time);
  for (std::size_t i = 0; i < model_.pairs_.size(); ++i) {
    interruption_point();
    const trace::Mark mark(&trace::Recorder::layer, static_cast<int>(i));
    const trace::Scope scope(trace::spans::transformer_block);
    if (kept != nullptr) kept->push_back(x.clone());
    x = model_.run_pair(i, placement_, x, {&caption.context, 1}, of_blocks);
  }
  return x;
}

// Computes the prediction from the last block's tokens, and adds up its losses.
STDiTGradients::Predicted STDiTGradients::predict(const TrainingSample& sample, const Tensor& time,
                                                  const Tensor& x) {
  const STDiTConfig& c = model_.config_;
  Predicted result;
  result.table = model_.output_table(time);
  result.modulated = model_.modulated(x, result.table, 0, 1);
  const Tensor features = product(model_.out_, result.modulated);
  const Shape& box = sample.latents.shape();
  const Shape filled = whole_patches(box, c.patch);
  const Tensor predicted =
      resized_latents(ops::unpatchify(features, 0, c.patch,
                                      {filled[0], c.out_channels(), filled[2], filled[3]}),
                      box[2], box[3])
          .on(host_);

  // The loss is computed on the host; those of elements are added exactly, pixel by pixel.
  Tensor d = Tensor::zeros(predicted.shape(), DType::float32, host_);
  const std::int64_t pixels = box[2] * box[3], channels = c.in_channels;
  const std::int64_t elements = numel(placement_.clip().latents) * channels;
  for (std::int64_t i = 0; i < box[0] * pixels && !host_.only_shapes; ++i) {
    const std::int64_t frame = i / pixels, pixel = i % pixels;
    double of_pixel = 0;
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      const std::int64_t at = (frame * channels + channel) * pixels + pixel;
      const std::int64_t first = (2 * frame * channels + channel) * pixels + pixel;
      const std::int64_t second = first + channels * pixels;
      const float target = sample.target.data<float>()[at];
      const auto set = [&](std::int64_t where, double derivative) {
        d.data<float>()[where] = static_cast<float>(derivative / static_cast<double>(elements));
      };
      const float value = predicted.data<float>()[first];
      if (loss_) {
        const auto of_element =
            loss_->at(static_cast<std::int64_t>(sample.timestep), sample.clean.data<float>()[at],
                      target, value, predicted.data<float>()[second]);
        of_pixel += of_element.loss;
        set(first, of_element.d_noise);
        set(second, of_element.d_variance);
      } else {
        const double error = double{value} - double{target};
        of_pixel += error * error;
        set(first, 2 * error);
      }
    }
    losses_.add(of_pixel);
  }
  result.d =
      as_rows(ops::patchify(resized_latents(d, filled[2], filled[3]), c.patch, DType::float32));
  return result;
}

Tensor STDiTGradients::output_gradient(const TrainingSample& sample, const Tensor& time,
                                       const Tensor& x) {
  const auto [modulated, table, d] = predict(sample, time, x);
  const Device device = model_.device();
  const auto on_device = [&](const Tensor& rows) { return rows.to(x.dtype()).on(device); };
  weights_.by_inputs("final_layer.linear", frames_.to_columns(as_rows(modulated)),
                     frames_.gather(on_device(channels_last(d, model_.config_.out_channels()))));
  const Tensor d_modulated = stream(product(model_.out_backward_, on_device(d)));
  Tensor dx = Tensor::zeros(x.shape(), x.dtype(), device);
  Tensor sums = Tensor::zeros({2, of_block_.shape(1)}, DType::float32, host_);
  modulation_backward(frames_, x, d_modulated, table, 0, sums, dx);
  weights_.take("final_layer.scale_shift_table", sums.clone());
  of_time_ = row_sum(weights_.whole_together(sums, hidden()));
  return dx;
}

void STDiTGradients::modulation_backward(const TokenColumns& tokens, const Tensor& x,
                                         const Tensor& d, const Tensor& table, int shift,
                                         Tensor& sums, Tensor& dx) const {
  const Tensor of_norm = tokens.to_columns(as_rows(d));
  const Tensor normed =
      tokens.to_columns(as_rows(ops::layer_norm(x, model_.ones_, model_.zeros_, STDiT::norm_eps)));
  Tensor of_shift = sums.rows(shift, 1), of_scale = sums.rows(shift + 1, 1);
  ops::add(of_shift, row_sum(ops::token_sums(of_norm, {}, 0).on(host_)));
  ops::add(of_scale, row_sum(ops::token_sums(of_norm, normed, 0).on(host_)));
  ops::layer_norm_backward(x, model_.ones_, STDiT::norm_eps, {table, shift, shift + 1, {}}, d, dx);
}

void STDiTGradients::gate_backward(const TokenColumns& tokens, const Tensor& change,
                                   const Tensor& dx, int gate) {
  Tensor of_gate = of_block_.rows(gate, 1);
  ops::add(of_gate, row_sum(ops::token_sums(tokens.to_columns(as_rows(dx)),
                                            tokens.to_columns(as_rows(change)), 0)
                                .on(host_)));
}

Tensor STDiTGradients::exchanged(const std::optional<Exchange>& exchange, const Tensor& x,
                                 const Shape& shape) const {
  if (!exchange) return x;
  Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  exchange->run({x}, {&out, 1});
  return out;
}

// x: own tokens [token, channel] of whole heads → whole frames of all heads, or of own heads if
// ranks share frames.
Tensor STDiTGradients::whole_frames(const Tensor& x) const {
  const Shape& whole = placement_.in_heads_;
  return exchanged(to_heads_, x,
                   to_heads_ ? Shape{whole[0] * whole[1], whole[2] * model_.config_.head_channels()}
                             : x.shape());
}

Tensor STDiTGradients::own_tokens(const Tensor& x) const {
  return exchanged(to_tokens_, x, {placement_.frames() * placement_.positions(), hidden()});
}

STDiTGradients::SelfAttention STDiTGradients::attend_again(const Attention& layer,
                                                           const Sequences& how, const Tensor& x,
                                                           const Tensor& input) const {
  const std::int64_t d = hidden(), channels = model_.config_.head_channels();
  SelfAttention part{.x = x.clone(), .input = input};
  // Along time each position is a sequence: an item of a batch.
  const Shape& cut = placement_.position_cut_extents_;
  const Shape tokens = how.in_time ? Shape{cut[0], cut[1]} : Shape{x.shape(0), 1};
  const auto heads = [&](const Tensor& rows) {
    return rows.reshape({tokens[0], tokens[1], 1, rows.shape(1) / channels, channels});
  };
  part.raw_q = heads(as_rows(product(layer.backward.query_again, input)));
  const Tensor keys_values = as_rows(product(layer.backward.key_value_again, input));
  part.raw_k = heads(column_range(keys_values, {0, d}));
  part.q = part.raw_q;
  part.k = part.raw_k;
  if (v3()) {
    part.q = part.raw_q.clone();
    part.k = part.raw_k.clone();
    ops::normalise_and_rotate(part.q, layer.query_norm, how.cosines, how.sines);
    ops::normalise_and_rotate(part.k, layer.key_norm, how.cosines, how.sines);
  }
  const auto of_sequences = [&](const Tensor& own) {
    const Tensor rows = own.reshape({x.shape(0), d});
    if (how.in_time) return rows.reshape({cut[0], cut[1], d / channels, channels});
    const Tensor whole = whole_frames(rows);
    return whole.reshape({whole.shape(0), 1, whole.shape(1) / channels, channels});
  };
  part.q = of_sequences(part.q);
  part.k = of_sequences(part.k);
  part.v = of_sequences(column_range(keys_values, {d, d}));
  part.forward = ops::attention_forward(part.q, part.k, part.v, model_.scale_, model_.numerics_,
                                        sequences(how));
  const Tensor& out = part.forward.out;
  part.attended =
      stream(how.in_time ? out.reshape({x.shape(0), d})
                         : own_tokens(out.reshape({out.shape(0), out.shape(2) * channels})));
  part.change = product(layer.backward.out_again, part.attended);
  return part;
}

STDiTGradients::TextAttention STDiTGradients::attend_to_text_again(const Attention& layer,
                                                                   const Caption& caption,
                                                                   std::size_t index,
                                                                   Tensor& x) const {
  const std::int64_t d = hidden(), channels = model_.config_.head_channels();
  const TokenColumns::Range own = positions_.own_columns(d);
  const auto heads = [&](const Tensor& rows) {
    return rows.reshape({rows.shape(0), 1, own.count / channels, channels});
  };
  TextAttention part{.x = x.clone()};
  part.q = heads(positions_.to_columns(as_rows(product(layer.backward.query_again, x))));
  const Tensor& all_heads = caption.context.keys_values[index];
  const Tensor keys_values = all_heads.reshape({all_heads.shape(0), 2 * d});
  part.k = heads(column_range(keys_values, own));
  part.v = heads(column_range(keys_values, {d + own.begin, own.count}));
  part.forward = ops::attention_forward(part.q, part.k, part.v, model_.scale_, model_.numerics_);
  const Tensor attended =
      positions_.to_tokens(part.forward.out.reshape({part.q.shape(0), own.count}), d);
  ops::add(x, product(layer.backward.out_again, stream(attended)));
  return part;
}

STDiTGradients::Mlp STDiTGradients::mlp_again(const Block& block, const Tensor& table,
                                              Tensor& x) const {
  Mlp part{.x = x.clone()};
  part.normed = model_.modulated(x, table, mlp_shift, mlp_scale);
  part.features = product(block.mlp_backward.up_again, part.normed);
  part.hidden = ops::gelu_tanh(part.features);
  part.change = product(block.mlp_backward.down_again, part.hidden);
  ops::add_gated(x, part.change, table, mlp_gate);
  return part;
}

Tensor STDiTGradients::self_attention_backward(const std::string& name, const Attention& layer,
                                               const Sequences& how, const SelfAttention& part,
                                               const Tensor& table, Tensor& dx) {
  const std::int64_t d = hidden(), rows = part.x.shape(0);
  const TokenColumns& tokens = how.tokens;
  gate_backward(tokens, part.change, dx, attention_gate);
  const Tensor d_change = ops::gated(dx, {table, attention_gate, {}});
  weights_.by_inputs(name + ".proj", tokens.to_columns(as_rows(part.attended)),
                     tokens.gather(as_rows(d_change)));
  const Tensor d_attended = as_rows(product(layer.backward.out, d_change));
  const Tensor d_out =
      (how.in_time ? d_attended : whole_frames(d_attended)).reshape(part.q.shape());
  const ops::AttentionGradients of_whole = ops::attention_backward(
      part.q, part.k, part.v, part.forward, d_out, model_.scale_, model_.numerics_, sequences(how));
  const auto own = [&](const Tensor& x) {
    if (how.in_time) return x.reshape({rows, d});
    return own_tokens(x.reshape({x.shape(0), x.shape(2) * x.shape(3)}));
  };
  Tensor dq = own(of_whole.q), dk = own(of_whole.k);
  const Tensor dv = own(of_whole.v);
  if (v3()) {
    const auto through_norm = [&](const char* which, const ops::HeadNorm& norm, const Tensor& raw,
                                  const Tensor& gradient) {
      Tensor view = gradient.reshape(raw.shape());
      Tensor of_norm = Tensor::empty(raw.shape(), raw.dtype(), raw.device());
      ops::normalise_and_rotate_backward(raw, norm, how.cosines, how.sines, 0, view, &of_norm);
      head_norm(name + which, raw, of_norm, tokens);
      return view.reshape({rows, d});
    };
    dq = through_norm(".q_norm.weight", layer.query_norm, part.raw_q, dq);
    dk = through_norm(".k_norm.weight", layer.key_norm, part.raw_k, dk);
  }
  const Tensor d_keys_values = side_by_side(dk, dv);
  weights_.by_outputs(name + ".qkv", tokens.gather(as_rows(part.input)),
                      tokens.to_columns(side_by_side(dq, d_keys_values)));
  Tensor d_input = stream(product(layer.backward.key_value, d_keys_values));
  ops::add(d_input, stream(product(layer.backward.query, dq)));
  return d_input;
}

// Of the weight of the norm of heads. raw: what it takes, d: the gradient of what it gives.
void STDiTGradients::head_norm(const std::string& name, const Tensor& raw, const Tensor& d,
                               const TokenColumns& tokens) {
  const std::int64_t channels = model_.config_.head_channels();
  Tensor normed = raw.clone();
  ops::normalise_and_rotate(normed, {unit_weight_, {}, STDiT::norm_eps}, {}, {});
  const auto columns = [&](const Tensor& x) {
    return tokens.to_columns(x.reshape({x.numel() / hidden(), hidden()}));
  };
  const Tensor own = row_sum(ops::token_sums(columns(d), columns(normed), 0).on(host_));
  const Tensor whole = weights_.whole_together(own, hidden());
  weights_.take_own(name, row_sum(whole.reshape({hidden() / channels, channels})));
}

void STDiTGradients::text_attention_backward(const std::string& name, const Attention& layer,
                                             const Caption& caption, const TextAttention& part,
                                             Tensor& dx) {
  const std::int64_t d = hidden();
  const auto rows = [](const Tensor& x) {
    return x.reshape({x.shape(0), x.shape(2) * x.shape(3)});
  };
  weights_.by_inputs(name + ".proj", rows(part.forward.out), positions_.gather(as_rows(dx)));
  const Tensor d_attended = as_rows(product(layer.backward.out, dx));
  const ops::AttentionGradients of_heads = ops::attention_backward(
      part.q, part.k, part.v, part.forward,
      positions_.to_columns(d_attended).reshape(part.q.shape()), model_.scale_, model_.numerics_);
  weights_.by_outputs(name + ".q_linear", positions_.gather(as_rows(part.x)), rows(of_heads.q));
  const Tensor d_keys_values = side_by_side(weights_.whole_together(rows(of_heads.k), d),
                                            weights_.whole_together(rows(of_heads.v), d));
  weights_.by_outputs(name + ".kv_linear", as_rows(caption.result),
                      column_range(d_keys_values, positions_.own_columns(2 * d)));
  ops::add(of_caption_, stream(layer.backward.key_value.with_all_rows(d_keys_values)));
  const Tensor dq = positions_.to_tokens(rows(of_heads.q), d);
  ops::add(dx, stream(product(layer.backward.query, dq)));
}

void STDiTGradients::mlp_backward(const std::string& name, const Block& block, const Mlp& part,
                                  const Tensor& table, Tensor& dx) {
  gate_backward(positions_, part.change, dx, mlp_gate);
  const Tensor d_change = ops::gated(dx, {table, mlp_gate, {}});
  weights_.by_inputs(name + ".mlp.fc2", positions_.to_columns(as_rows(part.hidden)),
                     positions_.gather(as_rows(d_change)));
  Tensor d_features = product(block.mlp_backward.down, d_change);
  ops::gelu_tanh_backward(part.features, d_features);
  weights_.by_outputs(name + ".mlp.fc1", positions_.gather(as_rows(part.normed)),
                      positions_.to_columns(as_rows(d_features)));
  const Tensor d_normed = product(block.mlp_backward.up, d_features);
  modulation_backward(positions_, part.x, d_normed, table, mlp_shift, of_block_, dx);
}

void STDiTGradients::finish_block(const std::string& block) {
  weights_.take(block + ".scale_shift_table", of_block_.clone());
  ops::add(of_blocks_, of_block_);
  if (!host_.only_shapes) std::ranges::fill(of_block_.span<float>(), 0.0F);
}

// in: the stream before the pair, frames cut; dx: the gradient of the stream after it, replaced by
// that before it.
void STDiTGradients::pair_backward(std::size_t index, Tensor in, const Caption& caption,
                                   const Tensor& time, Tensor& dx) {
  const auto& [spatial, temporal] = model_.pairs_[index];
  const auto modulated = [&](const Tensor& x, const Tensor& table) {
    return model_.modulated(x, table, attention_shift, attention_scale);
  };
  const auto attention = [&](const std::string& name, const Block& block, const Sequences& how,
                             const SelfAttention& part, const Tensor& table) {
    const Tensor d = self_attention_backward(name, block.attention, how, part, table, dx);
    modulation_backward(how.tokens, part.x, d, table, attention_shift, of_block_, dx);
  };
  const Tensor table = model_.block_table(spatial, time);
  const SelfAttention within =
      attend_again(spatial.attention, in_space(), in, modulated(in, table));
  ops::add_gated(in, within.change, table, attention_gate);
  Tensor x = placement_.to_positions(in);
  if (v3()) {
    const std::string first = fmt::format("spatial_blocks.{}", index);
    const std::string second = fmt::format("temporal_blocks.{}", index);
    const Tensor later = model_.block_table(temporal, time);
    const TextAttention text1 = attend_to_text_again(spatial.text, caption, 2 * index, x);
    const Mlp mlp1 = mlp_again(spatial, table, x);
    const SelfAttention along = attend_again(temporal.attention, in_time(), x, modulated(x, later));
    ops::add_gated(x, along.change, later, attention_gate);
    const TextAttention text2 = attend_to_text_again(temporal.text, caption, 2 * index + 1, x);
    const Mlp mlp2 = mlp_again(temporal, later, x);

    dx = placement_.to_positions(dx);
    mlp_backward(second, temporal, mlp2, later, dx);
    text_attention_backward(second + ".cross_attn", temporal.text, caption, text2, dx);
    attention(second + ".attn", temporal, in_time(), along, later);
    finish_block(second);
    mlp_backward(first, spatial, mlp1, table, dx);
    text_attention_backward(first + ".cross_attn", spatial.text, caption, text1, dx);
    dx = placement_.to_frames(dx);
    attention(first + ".attn", spatial, in_space(), within, table);
    finish_block(first);
    return;
  }
  const std::string name = fmt::format("blocks.{}", index);
  const SelfAttention along = attend_again(
      temporal.attention, in_time(), x, index == 0 ? model_.with_times(placement_, x) : x.clone());
  ops::add_gated(x, along.change, table, attention_gate);
  const TextAttention text = attend_to_text_again(spatial.text, caption, index, x);
  const Mlp mlp = mlp_again(spatial, table, x);

  dx = placement_.to_positions(dx);
  mlp_backward(name, spatial, mlp, table, dx);
  text_attention_backward(name + ".cross_attn", spatial.text, caption, text, dx);
  ops::add(dx, self_attention_backward(name + ".attn_temp", temporal.attention, in_time(), along,
                                       table, dx));
  dx = placement_.to_frames(dx);
  attention(name + ".attn", spatial, in_space(), within, table);
  finish_block(name);
}

// Of an embedding second(silu(first(sinusoid))). d: the gradient of what it gives, float32 [1,
// channel].
void STDiTGradients::embedder_gradients(const std::string& module, const Tensor& sinusoid,
                                        const ops::Linear& first,
                                        const ops::Linear& second_backward, const Tensor& d) const {
  const auto numbers = [&](const Tensor& x) { return x.on(host_).to(DType::float32); };
  const Tensor hidden_values = first.with_all_rows(sinusoid);
  weights_.row_by_outputs(module + ".mlp.2", numbers(ops::silu(hidden_values)), d);
  const Tensor of_activated =
      numbers(second_backward.with_all_rows(d.to(sinusoid.dtype()).on(model_.device())));
  weights_.row_by_outputs(module + ".mlp.0", numbers(sinusoid),
                          through_silu(of_activated, numbers(hidden_values)));
}

// The gradients of the layers before the blocks. dx: of the first block's stream.
void STDiTGradients::finish(const TrainingSample& sample, const Caption& caption,
                            const Tensor& sinusoid, const Tensor& time, const Tensor& dx) {
  const STDiTConfig& c = model_.config_;
  const Device device = model_.device();
  const Shape filled = whole_patches(sample.latents.shape(), c.patch);
  const Tensor patches = as_rows(ops::patchify(
      resized_latents(sample.latents.on(device), filled[2], filled[3]), c.patch, model_.dtype_));
  weights_.by_outputs("x_embedder.proj", frames_.gather(patches), frames_.to_columns(as_rows(dx)));

  const auto numbers = [&](const Tensor& x) { return x.on(host_).to(DType::float32); };
  const Tensor tables =
      weights_.whole_together(of_blocks_, hidden()).reshape({1, table_chunks * hidden()});
  weights_.row_by_outputs("t_block.1", numbers(ops::silu(time)), tables);
  const Tensor of_activated =
      numbers(model_.time_block_backward_.with_all_rows(tables.to(model_.dtype_).on(device)));
  ops::add(of_time_, through_silu(of_activated, numbers(time)));
  embedder_gradients("t_embedder", sinusoid, model_.time1_, model_.time2_backward_, of_time_);
  if (v3()) {
    embedder_gradients("fps_embedder", placement_.fps_.to(model_.dtype_), model_.fps1_,
                       model_.fps2_backward_, of_time_);
  }

  const TokenColumns::Range own = frames_.own_columns(hidden());
  weights_.by_outputs("y_embedder.y_proj.fc2", as_rows(caption.activated),
                      column_range(as_rows(of_caption_), own));
  Tensor d_hidden = model_.caption2_backward_.with_all_rows(of_caption_);
  ops::gelu_tanh_backward(caption.hidden, d_hidden);
  weights_.by_outputs("y_embedder.y_proj.fc1", as_rows(caption.text),
                      column_range(as_rows(d_hidden), own));
}

ops::ExactSum STDiTGradients::gradient_together(const TrainingSample& sample,
                                                const TakeGradient& take) {
  losses_ = {};
  weights_.begin(take);
  if (!host_.only_shapes) std::ranges::fill(of_blocks_.span<float>(), 0.0F);
  const Tensor sinusoid = model_.embed(sample.timestep);
  const Tensor time = model_.time_embedding(placement_, sinusoid);
  const Caption caption = encode(sample);
  of_caption_ = Tensor::zeros(caption.result.shape(), model_.dtype_, model_.device());
  std::vector<Tensor> kept;
  Tensor dx;
  {
    const Tensor x = forward(sample, caption, time, &kept);
    dx = output_gradient(sample, time, x);
  }
  const Tensor of_blocks = model_.block_time(time);
  for (std::size_t i = model_.pairs_.size(); i-- > 0;) {
    interruption_point();
    const trace::Mark mark(&trace::Recorder::layer, static_cast<int>(i));
    const trace::Scope scope(trace::spans::transformer_block);
    pair_backward(i, std::move(kept[i]), caption, of_blocks, dx);
    kept.pop_back();
  }
  finish(sample, caption, sinusoid, time, dx);
  return losses_;
}

ops::ExactSum STDiTGradients::losses_together(const TrainingSample& sample) {
  losses_ = {};
  const Tensor time = model_.time_embedding(placement_, model_.embed(sample.timestep));
  predict(sample, time, forward(sample, encode(sample), time, nullptr));
  return losses_;
}

STDiTTrainable::STDiTTrainable(const Checkpoint& weights, const STDiTConfig& config, DType dtype,
                               const WeightPlacement& placement, std::optional<IddpmLoss> loss)
    : checkpoint_(weights),
      config_(config),
      dtype_(dtype),
      placement_(placement),
      loss_(std::move(loss)),
      weights_(trained_weights(config)) {
  model_.emplace(weights, config, dtype, placement, true);
}

void STDiTTrainable::set_together(const MatrixValues& values) {
  const PurposeScope purpose(Purpose::weights);
  model_.reset();  // so that there is only one at a time
  model_.emplace(weights_.with_values(checkpoint_, values), config_, dtype_, placement_, true);
}

std::unique_ptr<Trainable::Prepared> STDiTTrainable::prepare(const DenoiseTask& task) const {
  return std::make_unique<STDiTGradients>(*model_, task, weights_, loss_);
}

}  // namespace reelmesh
