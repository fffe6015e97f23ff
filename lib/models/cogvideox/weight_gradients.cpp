#include "models/cogvideox/weight_gradients.hpp"

#include <algorithm>
#include <cmath>

#include "models/cogvideox/transformer.hpp"
#include "ops/norm_backward.hpp"
#include "ops/pointwise.hpp"
#include "ops/token_products.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t table_chunks = 2 * video_chunks;
// Rows of of_block_ after the chunks of both tables.
constexpr std::int64_t head_norms = 2 * table_chunks, block_rows = head_norms + 4;

}  // namespace

WeightGradients::WeightGradients(const TrainedWeights& weights, const CogVideoXConfig& config,
                                 const comm::Group& group, const TokenColumns& all,
                                 const Layout& text, const Layout& video, Device device)
    : LayerGradients(weights, group, all, device),
      text_(group, {text}, config.head_channels),
      video_(group, {video}, config.head_channels),
      channels_(config.channels()),
      head_channels_(config.head_channels),
      all_texts_(numel(text.global())),
      ones_(Tensor::empty({channels_}, DType::float32, host_)),
      zeros_(Tensor::zeros({channels_}, DType::float32, host_).on(device)) {
  if (!host_.only_shapes) std::ranges::fill(ones_.span<float>(), 1.0F);
  ones_ = ones_.on(device);
  of_time_ = Tensor::zeros({config.time_channels}, DType::float32, host_);
  const std::int64_t own = columns_.own_columns(channels_).count;
  of_block_ = Tensor::zeros({block_rows, own}, DType::float32, host_);
  of_last_ = Tensor::zeros({2, own}, DType::float32, host_);
}

void WeightGradients::begin(const TakeGradient& take) {
  LayerGradients::begin(take);
  if (!host_.only_shapes) std::ranges::fill(of_time_.span<float>(), 0.0F);
}

std::int64_t WeightGradients::chunk_row(Table table, std::int64_t chunk) const {
  return table == Table::second ? table_chunks + chunk : chunk;
}

void WeightGradients::norm_together(const std::string& module, const Affine& norm, float eps,
                                    const Tensor& x, const Tensor& d, std::optional<Table> table,
                                    const Tensor& modulation) {
  const bool of_video = !table || table == Table::last;
  const TokenColumns& tokens = of_video ? video_ : columns_;
  const std::int64_t first = of_video ? 0 : all_texts_;
  const Tensor of_norm = tokens.to_columns(as_rows(d));
  const Tensor normalised = tokens.to_columns(as_rows(ops::layer_norm(x, ones_, zeros_, eps)));
  const Tensor sums = ops::token_sums(of_norm, {}, first).on(host_);
  const Tensor products = ops::token_sums(of_norm, normalised, first).on(host_);
  const TokenColumns::Range own = columns_.own_columns(channels_);
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
  const Tensor sums = ops::token_sums(columns_.to_columns(as_rows(d)),
                                      columns_.to_columns(as_rows(change)), all_texts_)
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
      row_sum(ops::token_sums(of_norm, normalised.reshape(rows), 0).on(host_)));
  of_block_.rows(row + 1, 1).copy_from(row_sum(ops::token_sums(of_norm, {}, 0).on(host_)));
}

// table: the gradient of the layer's outputs, [output], float32.
void WeightGradients::modulation(const std::string& module, const Tensor& time, const Tensor& table,
                                 const ops::Linear& backward) {
  const Tensor row = table.reshape({1, table.numel()});
  const Tensor of_time =
      backward.with_all_rows(row.to(time.dtype()).on(device_)).on(host_).to(DType::float32);
  ops::add(of_time_, of_time.reshape(of_time_.shape()));
  row_by_outputs(module, time.on(host_).to(DType::float32), row);
}

void WeightGradients::finish_block_together(const std::string& block, const Tensor& time,
                                            const ops::Linear& backward1,
                                            const ops::Linear& backward2) {
  const Tensor whole = whole_together(of_block_, channels_);
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
  modulation("norm_out.linear", time, whole_together(of_last_, channels_), backward);
}

Tensor WeightGradients::of_time(const Tensor& time) const {
  const Tensor d = through_silu(of_time_, time.on(host_).to(DType::float32));
  return d.reshape({1, d.numel()});
}

void WeightGradients::embedding(const std::string& module, const Tensor& sinusoid,
                                const Tensor& hidden, const Tensor& activated, const Tensor& d,
                                const ops::Linear& backward2) {
  const auto numbers = [&](const Tensor& x) { return x.on(host_).to(DType::float32); };
  row_by_inputs(module + ".linear_2", numbers(activated), d);
  const Tensor of_activated = numbers(backward2.with_all_rows(d.to(sinusoid.dtype()).on(device_)));
  row_by_inputs(module + ".linear_1", numbers(sinusoid),
                through_silu(of_activated, numbers(hidden)));
}

}  // namespace reelmesh
