#include "models/t5/t5.hpp"

#include <algorithm>
#include <cmath>

#include "base/trace.hpp"
#include "ops/attention.hpp"
#include "ops/norm.hpp"
#include "ops/pointwise.hpp"

namespace reelmesh {
namespace {

constexpr const char* embedding_tensor = "shared.weight";

}  // namespace

DType t5_stream(DType dtype) { return dtype == DType::float16 ? DType::float32 : dtype; }

T5Layers::T5Layers(const Checkpoint& weights, const T5Config& c, const T5Part& part, DType dtype,
                   const WeightPlacement& placement)
    : config_(c), part_(part), dtype_(dtype), numerics_(weights.numerics()) {
  const DType residual = t5_stream(dtype);
  const auto norm = [&](const std::string& name) {
    return weights.load(name, {c.d_model}, dtype).to(residual);
  };
  const std::int64_t inner = c.num_heads * c.d_kv;
  WeightStream stream(placement);
  const auto linear = [&](const std::vector<std::string>& names, std::int64_t in, std::int64_t out,
                          DType type) {
    const LinearParameters layer = linear_parameters(weights, names, in, out, type, false);
    return stream.add(layer.weight, layer.bias);
  };
  if (part.embedding) {
    embedding_ = weights;
    embedding_->ask(embedding_tensor, {c.vocab_size, c.d_model});
  }
  for (std::int64_t i = part.first; i < part.last; ++i) {
    const std::string attention = t5_layer_name(i, "0.SelfAttention.");
    const std::string feed_forward = t5_layer_name(i, "1.DenseReluDense.");
    Layer layer;
    layer.position_table =
        c.umt5 || layers_.empty()
            ? weights.load(t5_position_table(c, i), {c.num_buckets, c.num_heads}, dtype)
                  .on(weights.device().host())
                  .to(DType::float32)
            : layers_.front().position_table;
    layer.attention_norm = norm(t5_layer_name(i, "0.layer_norm.weight"));
    layer.qkv =
        linear({attention + "q", attention + "k", attention + "v"}, c.d_model, inner, dtype);
    layer.out = linear({attention + "o"}, inner, c.d_model, dtype);
    layer.feed_forward_norm = norm(t5_layer_name(i, "1.layer_norm.weight"));
    layer.gate = linear({feed_forward + "wi_0"}, c.d_model, c.d_ff, dtype);
    layer.up = linear({feed_forward + "wi_1"}, c.d_model, c.d_ff, dtype);
    layer.down = linear({feed_forward + "wo"}, c.d_ff, c.d_model, residual);
    layers_.push_back(std::move(layer));
  }
  if (part.final_norm) {
    final_norm_ = norm("encoder.final_layer_norm.weight");
  }
}

Tensor T5Layers::embed(std::span<const std::int32_t> ids) const {
  expect(embedding_.has_value(), "this part of T5 has no embedding");
  const Shape table{config_.vocab_size, config_.d_model};
  Tensor rows =
      Tensor::empty({std::ssize(ids), 1, config_.d_model}, dtype_, embedding_->device().host());
  for (std::int64_t i = 0; i < std::ssize(ids) && !rows.device().only_shapes; ++i) {
    const std::int32_t id = ids[static_cast<std::size_t>(i)];
    require(id >= 0 && id < config_.vocab_size, Status::data,
            "found token id {}, expected less than the {} rows of the embedding", id,
            config_.vocab_size);
    embedding_->read_rows(embedding_tensor, table, id, 1, dtype_, rows.rows(i, 1).raw(),
                          config_.d_model);
  }
  return rows.on(embedding_->device()).to(t5_stream(dtype_));
}

// RMS norm of x as dtype_.
Tensor T5Layers::normed(const Tensor& x, const Tensor& weight) const {
  return ops::rms_norm(x, weight, static_cast<float>(config_.epsilon)).to(dtype_);
}

// → [head, query, key]
Tensor T5Layers::position_bias(const Layer& layer, std::int64_t tokens, Device device) const {
  const std::int64_t heads = config_.num_heads;
  if (!config_.umt5 && position_bias_.shape() == Shape{heads, tokens, tokens}) {
    return position_bias_;
  }
  Tensor bias = Tensor::empty({heads, tokens, tokens}, DType::float32, device.host());
  if (!device.only_shapes) {
    // Of the distances key − query from 1 − tokens on: the keys of a query are neighbours in it.
    std::vector<float> of_distance(static_cast<std::size_t>(2 * tokens - 1));
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t d = 1 - tokens; d < tokens; ++d) {
        const std::int64_t bucket = t5_bucket(d, config_.num_buckets, config_.max_distance);
        of_distance[static_cast<std::size_t>(d + tokens - 1)] =
            layer.position_table.data<float>()[bucket * heads + h];
      }
      for (std::int64_t q = 0; q < tokens; ++q) {
        std::copy_n(of_distance.begin() + (tokens - 1 - q), tokens,
                    bias.data<float>() + (h * tokens + q) * tokens);
      }
    }
  }
  bias = bias.on(device);
  if (!config_.umt5) position_bias_ = bias;
  return bias;
}

Tensor T5Layers::operator()(Tensor x) const {
  const std::int64_t tokens = x.shape(0), heads = config_.num_heads;
  x = x.clone();  // the residual stream is updated in place
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const trace::Mark mark(&trace::Recorder::layer,
                           static_cast<int>(part_.first) + static_cast<int>(i));
    const trace::Scope scope(trace::spans::t5_layer);
    {  // tensors of attention are freed before the feed-forward layers allocate wide ones
      const Tensor bias = position_bias(layer, tokens, x.device());
      const Tensor qkv = layer.qkv.with_all_rows(normed(x, layer.attention_norm));
      const Tensor attended =
          ops::attention(qkv.reshape({tokens, 1, 3, heads, config_.d_kv}), 1.0F, bias, numerics_);
      const Tensor flat = attended.reshape({tokens, 1, heads * config_.d_kv});
      ops::add(x, layer.out.with_all_rows(flat).to(x.dtype()));
    }
    const Tensor h = normed(x, layer.feed_forward_norm);
    Tensor gated = layer.gate.with_all_rows(h, ops::Activation::gelu_tanh);
    gated = ops::multiply(gated, layer.up.with_all_rows(h));
    ops::add(x, layer.down.with_all_rows(gated.to(x.dtype())));
  }
  return part_.final_norm ? normed(x, final_norm_) : x;
}

Tensor with_zero_rows(const Tensor& x, std::int64_t tokens) {
  const std::int64_t count = x.shape(0);
  if (count == tokens) return x;
  Tensor all = Tensor::zeros({tokens, x.shape(1), x.shape(2)}, x.dtype(), x.device());
  all.rows(0, count).copy_from(x);
  return all;
}

}  // namespace reelmesh
