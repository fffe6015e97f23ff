#include "models/cogvideox/weight_gradients.hpp"

#include <algorithm>
#include <cmath>

#include "ops/norm_backward.hpp"
#include "ops/token_products.hpp"

namespace reelmesh {
namespace {

// Rows of of_block_ after the chunks of both tables.
constexpr std::int64_t table_chunks = 6, later_chunks = 3;
constexpr std::int64_t head_norms = 2 * table_chunks, block_rows = head_norms + 4;
enum Chunk { shift_chunk, scale_chunk, gate_chunk };

Tensor as_rows(const Tensor& x) {
  return x.reshape({numel(Shape(x.shape().begin(), x.shape().end() - 1)), x.shape().back()});
}

// Columns of [row, column], on the host.
Tensor columns_of(const Tensor& x, const TokenColumns::Range& range) {
  Tensor out = Tensor::empty({x.shape(0), range.count}, x.dtype(), x.device());
  const Box box{{0, range.begin}, out.shape()};
  copy_box(box, x, {{0, 0}, x.shape()}, out, box);
  return out;
}

// The sum of both rows.
Tensor total(const Tensor& sums) {
  Tensor out = Tensor::empty({1, sums.shape(1)}, DType::float32, sums.device());
  if (out.device().only_shapes) return out;
  const float* from = sums.data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.data<float>()[i] = from[i] + from[i + out.numel()];
  return out;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
// d multiplied by the derivative of silu at x.
float through_silu(float d, float x) {
  const double s = sigmoid(double{x});
  return static_cast<float>(double{d} * s * (1 + double{x} * (1 - s)));
}

}  // namespace

WeightGradients::WeightGradients(const TrainedWeights& weights, const CogVideoXConfig& config,
                                 const comm::Group& group, const Layout& text, const Layout& video,
                                 Device device)
    : weights_(weights),
      group_(group),
      all_(group, {text, video}, config.head_channels),
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

void WeightGradients::by_outputs(std::size_t index, const Tensor& x, const Tensor& d) {
  (*take_)(index, ops::token_products(d, x).on(host_));
  (*take_)(index + 1, total(ops::token_sums(d, {}, 0).on(host_)));
}

void WeightGradients::by_inputs(std::size_t index, const Tensor& x, const Tensor& d) {
  (*take_)(index, ops::token_products(d, x).on(host_));
  take_own(index + 1, total(ops::token_sums(d, {}, 0).on(host_)));
}

void WeightGradients::take_own(std::size_t index, const Tensor& whole) {
  (*take_)(index, columns_of(whole, all_.own_columns(whole.shape(1))));
}

std::int64_t WeightGradients::chunk_row(Table table, std::int64_t chunk) const {
  return table == Table::second ? table_chunks + chunk : chunk;
}

void WeightGradients::norm_together(std::size_t index, const Affine& norm, float eps,
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
      const std::int64_t later = part == 0 ? later_chunks : 0;
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
  (*take_)(index, weight);
  (*take_)(index + 1, bias);
}

void WeightGradients::gate_together(Table table, const Tensor& change, const Tensor& d) {
  const Tensor sums =
      ops::token_sums(all_.to_columns(as_rows(d)), all_.to_columns(as_rows(change)), all_texts_)
          .on(host_);
  for (std::int64_t part = 0; part < 2; ++part) {
    const std::int64_t later = part == 0 ? later_chunks : 0;
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
  std::vector<Box> boxes;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const TokenColumns::Range range = all_.columns(channels_, rank);
    boxes.push_back({{0, range.begin}, {own.shape(0), range.count}});
  }
  const Layout cut({own.shape(0), channels_}, std::move(boxes));
  return relayout({own, cut, group_}, Layout::replicated(cut.global(), group_.size())).local;
}

// table: the gradient of the layer's outputs, [output], float32.
void WeightGradients::modulation(std::size_t index, const Tensor& time, const Tensor& table,
                                 const ops::Linear& backward) {
  const Tensor row = table.reshape({1, table.numel()});
  const Tensor of_time =
      backward.with_all_rows(row.to(time.dtype()).on(device_)).on(host_).to(DType::float32);
  const Tensor inputs = time.on(host_).to(DType::float32);
  const std::int64_t count = inputs.numel();
  take_own(index + 1, row);
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
  (*take_)(index, weight);
}

void WeightGradients::finish_block_together(std::int64_t block, const Tensor& time,
                                            const ops::Linear& backward1,
                                            const ops::Linear& backward2) {
  const Tensor whole = whole_together(of_block_);
  modulation(weights_.index(block, BlockWeight::modulation2), time,
             whole.rows(table_chunks, table_chunks), backward2);
  modulation(weights_.index(block, BlockWeight::modulation1), time, whole.rows(0, table_chunks),
             backward1);
  const std::size_t norms[] = {weights_.index(block, BlockWeight::query_norm),
                               weights_.index(block, BlockWeight::key_norm)};
  for (std::int64_t i = 0; i < 4; ++i) {  // weight and bias of each
    Tensor sum = Tensor::zeros({1, head_channels_}, DType::float32, host_);
    for (std::int64_t c = 0; c < channels_ && !host_.only_shapes; ++c) {
      sum.data<float>()[c % head_channels_] +=
          whole.data<float>()[(head_norms + i) * channels_ + c];
    }
    take_own(norms[i / 2] + static_cast<std::size_t>(i % 2), sum);
  }
}

void WeightGradients::finish_last_together(const Tensor& time, const ops::Linear& backward) {
  modulation(weights_.index(OuterWeight::modulation_out), time, whole_together(of_last_), backward);
}

void WeightGradients::finish_time(const Tensor& sinusoid, const Tensor& hidden,
                                  const Tensor& result, const ops::Linear& backward2) {
  const auto numbers = [&](const Tensor& x) { return x.on(host_).to(DType::float32); };
  const Tensor inputs = numbers(sinusoid), of_hidden = numbers(hidden), of_result = numbers(result);
  // The layer's gradient for d, that of its outputs.
  const auto layer = [&](OuterWeight which, const Tensor& x, const Tensor& d) {
    const std::size_t index = weights_.index(which);
    const std::int64_t in = x.numel(), out = d.numel();
    const TokenColumns::Range own = all_.own_columns(in);
    take_own(index + 1, d.reshape({1, out}));
    Tensor weight = Tensor::empty({out, own.count}, DType::float32, host_);
    for (std::int64_t i = 0; i < weight.numel() && !host_.only_shapes; ++i) {
      weight.data<float>()[i] =
          d.data<float>()[i / own.count] * x.data<float>()[own.begin + i % own.count];
    }
    (*take_)(index, weight);
  };
  Tensor d = of_time_.clone();
  Tensor activated = of_hidden.clone();
  if (!host_.only_shapes) {
    for (std::int64_t i = 0; i < d.numel(); ++i) {
      d.data<float>()[i] = through_silu(d.data<float>()[i], of_result.data<float>()[i]);
      const double x = double{of_hidden.data<float>()[i]};
      activated.data<float>()[i] = static_cast<float>(x * sigmoid(x));
    }
  }
  layer(OuterWeight::time2, activated, d);
  Tensor of_first =
      backward2.with_all_rows(d.reshape({1, d.numel()}).to(sinusoid.dtype()).on(device_))
          .on(host_)
          .to(DType::float32)
          .clone();
  for (std::int64_t i = 0; i < of_first.numel() && !host_.only_shapes; ++i) {
    of_first.data<float>()[i] = through_silu(of_first.data<float>()[i], of_hidden.data<float>()[i]);
  }
  layer(OuterWeight::time1, inputs, of_first);
}

}  // namespace reelmesh
