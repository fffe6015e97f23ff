#include "models/cogvideox/weight_gradients.hpp"

#include <algorithm>
#include <cmath>

#include "models/cogvideox/transformer.hpp"
#include "ops/norm_backward.hpp"
#include "ops/token_products.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t table_chunks = 2 * video_chunks;
// Rows of of_block_ after the chunks of both tables.
constexpr std::int64_t head_norms = 2 * table_chunks, block_rows = head_norms + 4;

// The sum of both rows.
Tensor total(const Tensor& sums) {
  Tensor out = Tensor::empty({1, sums.shape(1)}, DType::float32, sums.device());
  if (out.device().only_shapes) return out;
  const float* from = sums.data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    out.data<float>()[i] = from[i] + from[i + out.numel()];
  }
  return out;
}

// d multiplied by the derivative of silu at x.
float through_silu(float d, float x) {
  const double s = 1 / (1 + std::exp(-double{x}));
  return static_cast<float>(double{d} * s * (1 + double{x} * (1 - s)));
}

}  // namespace

Tensor as_rows(const Tensor& x) {
  const Shape leading(x.shape().begin(), x.shape().end() - 1);
  return x.reshape({numel(leading), x.shape().back()});
}

Tensor column_range(const Tensor& x, const TokenColumns::Range& range) {
  if (range.begin == 0 && range.count == x.shape(1)) return x;
  Tensor out = Tensor::empty({x.shape(0), range.count}, x.dtype(), x.device());
  const Box box{{0, range.begin}, out.shape()};
  copy_box(box, x, {{0, 0}, x.shape()}, out, box);
  return out;
}

WeightGradients::WeightGradients(const TrainedWeights& weights, const CogVideoXConfig& config,
                                 const comm::Group& group, const TokenColumns& all,
                                 const Layout& text, const Layout& video, Device device)
    : weights_(weights),
      group_(group),
      all_(all),
      text_(group, {text}, config.head_channels),
      video_(group, {video}, config.head_channels),
      device_(device),
      host_(device.host()),
      channels_(config.channels()),
      head_channels_(config.head_channels),
      all_texts_(numel(text.global())),
      ones_(Tensor::empty({channels_}, DType::float32, host_)),
      zeros_(Tensor::zeros({channels_}, DType::float32, host_).on(device)) {
  if (!host_.only_shapes) std::ranges::fill(ones_.span<float>(), 1.0F);
  ones_ = ones_.on(device);
  of_time_ = Tensor::zeros({config.time_channels}, DType::float32, host_);
  const std::int64_t own = all_.own_columns(channels_).count;
  of_block_ = Tensor::zeros({block_rows, own}, DType::float32, host_);
  of_last_ = Tensor::zeros({2, own}, DType::float32, host_);
}

void WeightGradients::begin(const TakeGradient& take) {
  take_ = &take;
  if (!host_.only_shapes) std::ranges::fill(of_time_.span<float>(), 0.0F);
}

void WeightGradients::by_outputs(const std::string& module, const Tensor& x, const Tensor& d) {
  take(module + ".weight", ops::token_products(d, x).on(host_));
  take(module + ".bias", total(ops::token_sums(d, {}, 0).on(host_)));
}

void WeightGradients::by_inputs(const std::string& module, const Tensor& x, const Tensor& d) {
  take(module + ".weight", ops::token_products(d, x).on(host_));
  take_own(module + ".bias", total(ops::token_sums(d, {}, 0).on(host_)));
}

void WeightGradients::take_own(const std::string& name, const Tensor& whole) const {
  // A copy: it may be a part of the sums of the present block.
  take(name, column_range(whole, all_.own_columns(whole.shape(1))).clone());
}

std::int64_t WeightGradients::chunk_row(Table table, std::int64_t chunk) const {
  return table == Table::second ? table_chunks + chunk : chunk;
}

void WeightGradients::norm_together(const std::string& module, const Affine& norm, float eps,
                                    const Tensor& x, const Tensor& d, std::optional<Table> table,
                                    const Tensor& modulation) {
  const bool of_video = !table || table == Table::last;
  const TokenColumns& tokens = of_video ? video_ : all_;
  const std::int64_t first = of_video ? 0 : all_texts_;
  const Tensor of_norm = tokens.to_columns(as_rows(d));
  const Tensor normalised = tokens.to_columns(as_rows(ops::layer_norm(x, ones_, zeros_, eps)));
  const Tensor sums = ops::token_sums(of_norm, {}, first).on(host_);
  const Tensor products = ops::token_sums(of_norm, normalised, first).on(host_);
  const TokenColumns::Range own = all_.own_columns(channels_);
  Tensor weight = Tensor::zeros({1, own.count}, DType::float32, host_), bias = weight.clone();
  const Tensor w = norm.weight.on(host_).to(DType::float32),
               b = norm.bias.on(host_).to(DType::float32);
  const Tensor chunks = table ? modulation.on(host_).to(DType::float32) : Tensor();
  if (!host_.only_shapes) {
    for (std::int64_t part = of_video ? 1 : 0; part < 2; ++part) {
      const std::int64_t later = part == 0 ? video_chunks : 0;
      for (std::int64_t i = 0; i < own.count; ++i) {
        const std::int64_t c = own.begin + i;
        const float sum = sums.data<float>()[part * own.count + i];
        const float product = products.data<float>()[part * own.count + i];
        float factor = 1;
        if (table) {
          float* into = chunk_sums(*table).data<float>() + i;
          into[chunk_row(*table, later + shift_chunk) * own.count] = sum;
          into[chunk_row(*table, later + scale_chunk) * own.count] =
              w.data<float>()[c] * product + b.data<float>()[c] * sum;
          factor = 1 + chunks.data<float>()[(later + scale_chunk) * channels_ + c];
        }
        weight.data<float>()[i] += factor * product;
        bias.data<float>()[i] += factor * sum;
      }
    }
  }
  take(module + ".weight", weight);
  take(module + ".bias", bias);
}

void WeightGradients::gate_together(Table table, const Tensor& change, const Tensor& d) {
  const Tensor sums =
      ops::token_sums(all_.to_columns(as_rows(d)), all_.to_columns(as_rows(change)), all_texts_)
          .on(host_);
  for (std::int64_t part = 0; part < 2; ++part) {
    const std::int64_t later = part == 0 ? video_chunks : 0;
    of_block_.rows(chunk_row(table, later + gate_chunk), 1).copy_from(sums.rows(part, 1));
  }
}

void WeightGradients::head_norm(bool of_query, float norm_eps, const Tensor& x, const Tensor& d) {
  Tensor normalised = x.clone();
  ops::normalise_and_rotate(
      normalised, {ones_.rows(0, head_channels_), zeros_.rows(0, head_channels_), norm_eps}, {}, {},
      0);
  const std::int64_t tokens = x.shape(0), columns = x.numel() / std::max<std::int64_t>(1, tokens);
  const Shape rows{tokens, columns};
  const std::int64_t row = head_norms + (of_query ? 0 : 2);
  const Tensor of_norm = d.reshape(rows);
  of_block_.rows(row, 1).copy_from(
      total(ops::token_sums(of_norm, normalised.reshape(rows), 0).on(host_)));
  of_block_.rows(row + 1, 1).copy_from(total(ops::token_sums(of_norm, {}, 0).on(host_)));
}

// own: this rank's columns of [row, channel].
Tensor WeightGradients::whole_together(const Tensor& own) const {
  const TrainedMatrix rows{.rows = own.shape(0), .columns = channels_};
  const Layout cut = rows.layout(all_, group_.size());
  return relayout({own, cut, group_}, Layout::replicated(cut.global(), group_.size())).local;
}

// table: the gradient of the layer's outputs, [output], float32.
void WeightGradients::modulation(const std::string& module, const Tensor& time, const Tensor& table,
                                 const ops::Linear& backward) {
  const Tensor row = table.reshape({1, table.numel()});
  const Tensor of_time =
      backward.with_all_rows(row.to(time.dtype()).on(device_)).on(host_).to(DType::float32);
  const Tensor inputs = time.on(host_).to(DType::float32);
  const std::int64_t count = inputs.numel();
  take_own(module + ".bias", row);
  const TokenColumns::Range own = all_.own_columns(row.numel());
  Tensor weight = Tensor::empty({own.count, count}, DType::float32, host_);
  if (!host_.only_shapes) {
    for (std::int64_t i = 0; i < count; ++i) of_time_.data<float>()[i] += of_time.data<float>()[i];
    for (std::int64_t c = 0; c < own.count; ++c) {
      const float d = row.data<float>()[own.begin + c];
      float* into = weight.data<float>() + c * count;
      for (std::int64_t i = 0; i < count; ++i) into[i] = inputs.data<float>()[i] * d;
    }
  }
  take(module + ".weight", weight);
}

void WeightGradients::finish_block_together(const std::string& block, const Tensor& time,
                                            const ops::Linear& backward1,
                                            const ops::Linear& backward2) {
  const Tensor whole = whole_together(of_block_);
  modulation(block + "norm2.linear", time, whole.rows(table_chunks, table_chunks), backward2);
  modulation(block + "norm1.linear", time, whole.rows(0, table_chunks), backward1);
  std::int64_t row = head_norms;
  for (const char* name : {"norm_q.weight", "norm_q.bias", "norm_k.weight", "norm_k.bias"}) {
    Tensor sum = Tensor::zeros({1, head_channels_}, DType::float32, host_);
    for (std::int64_t c = 0; c < channels_ && !host_.only_shapes; ++c) {
      sum.data<float>()[c % head_channels_] += whole.data<float>()[row * channels_ + c];
    }
    take_own(block + "attn1." + name, sum);
    ++row;
  }
}

void WeightGradients::finish_last_together(const Tensor& time, const ops::Linear& backward) {
  modulation("norm_out.linear", time, whole_together(of_last_), backward);
}

void WeightGradients::finish_time(const Tensor& sinusoid, const Tensor& hidden,
                                  const Tensor& activated, const Tensor& result,
                                  const ops::Linear& backward2) {
  const auto numbers = [&](const Tensor& x) { return x.on(host_).to(DType::float32); };
  // d multiplied by the derivative of silu at x.
  const auto before_silu = [&](Tensor d, const Tensor& x) {
    for (std::int64_t i = 0; i < d.numel() && !host_.only_shapes; ++i) {
      d.data<float>()[i] = through_silu(d.data<float>()[i], x.data<float>()[i]);
    }
    return d;
  };
  // The layer's gradient for d, that of its outputs.
  const auto layer = [&](const std::string& module, const Tensor& x, const Tensor& d) {
    const std::int64_t in = x.numel(), out = d.numel();
    const TokenColumns::Range own = all_.own_columns(in);
    take_own(module + ".bias", d.reshape({1, out}));
    Tensor weight = Tensor::empty({out, own.count}, DType::float32, host_);
    for (std::int64_t i = 0; i < weight.numel() && !host_.only_shapes; ++i) {
      weight.data<float>()[i] =
          d.data<float>()[i / own.count] * x.data<float>()[own.begin + i % own.count];
    }
    take(module + ".weight", weight);
  };
  const Tensor d = before_silu(of_time_.clone(), numbers(result));
  layer("time_embedding.linear_2", numbers(activated), d);
  const Tensor row = d.reshape({1, d.numel()}).to(sinusoid.dtype()).on(device_);
  const Tensor of_activated = numbers(backward2.with_all_rows(row)).clone();
  layer("time_embedding.linear_1", numbers(sinusoid), before_silu(of_activated, numbers(hidden)));
}

}  // namespace reelmesh
