#include "ops/norm_gradients.hpp"

#include <algorithm>

#include "ops/pointwise.hpp"
#include "ops/rows.hpp"
#include "ops/token_products.hpp"

namespace reelmesh::ops {
namespace {

// float32 [n] on the device of x, all of this value.
Tensor constant(const Tensor& x, std::int64_t n, float value) {
  Tensor out = Tensor::empty({n}, DType::float32, x.device().host());
  if (!out.device().only_shapes) std::ranges::fill(out.span<float>(), value);
  return out.on(x.device());
}

// How many of all tokens come first, where these have chunks of their own.
std::int64_t first_of_all(const TokenRows& rows, const FirstTokens& first) {
  return first.chunks_later > 0 ? rows.first_rows() : 0;
}

// The gradient of a table so far, [chunk, own column].
Tensor& chunk_sums(Tape& tape, const TokenRows& rows, const Tensor& table, std::int64_t channels) {
  expect(table.shape(0) == 1, "the gradient of a table {} of batch items", table.shape());
  const Shape shape{table.shape(1) / channels, rows.own_columns(channels).count};
  return tape.sum(table, shape, DType::float32, table.device().host());
}

void add_row(Tensor& sums, std::int64_t row, const Tensor& values) {
  Tensor into = sums.rows(row, 1);
  add(into, values.reshape(into.shape()));
}

// Of what is applied after the norm of x: its weights, shift and scale. d: of the result.
void add_norm_parameters(Tape& tape, const TokenRows& rows, const Tensor& x, const Tensor& weight,
                         const Tensor& bias, float eps, const Modulation& modulation,
                         const Tensor& d) {
  const std::int64_t n = x.shape().back();
  const bool modulated = !modulation.table.empty(), split = modulation.first.chunks_later > 0;
  const Device host = x.device().host();
  const Tensor d_norm = rows.to_columns(as_rows(d));
  const Tensor normalised =
      rows.to_columns(as_rows(layer_norm(x, constant(x, n, 1), constant(x, n, 0), eps)));
  const std::int64_t first = first_of_all(rows, modulation.first);
  const Tensor sums = token_sums(d_norm, {}, first).on(host);
  const Tensor products = token_sums(d_norm, normalised, first).on(host);
  const TokenRows::Range own = rows.own_columns(n);
  Tensor d_weight = Tensor::zeros({1, own.count}, DType::float32, host), d_bias = d_weight;
  d_bias = d_weight.clone();
  const Tensor w = numbers(weight), b = numbers(bias);
  const Tensor chunks = modulated ? numbers(modulation.table) : Tensor();
  const bool needs_table = modulated && Tape::needs(modulation.table);
  for (std::int64_t part = split ? 0 : 1; part < 2; ++part) {
    const std::int64_t later = part == 0 ? modulation.first.chunks_later : 0;
    const std::int64_t shift = modulation.shift + later, scale = modulation.scale + later;
    Tensor d_scale = Tensor::zeros({1, own.count}, DType::float32, host);
    for (std::int64_t i = 0; i < own.count && !host.only_shapes; ++i) {
      const std::int64_t c = own.begin + i;
      const float sum = sums.data<float>()[part * own.count + i];
      const float product = products.data<float>()[part * own.count + i];
      d_scale.data<float>()[i] = w.data<float>()[c] * product + b.data<float>()[c] * sum;
      const float factor = modulated ? 1 + chunks.data<float>()[scale * n + c] : 1;
      d_weight.data<float>()[i] += factor * product;
      d_bias.data<float>()[i] += factor * sum;
    }
    if (!needs_table) continue;
    Tensor& d_table = chunk_sums(tape, rows, modulation.table, n);
    add_row(d_table, shift, sums.rows(part, 1));
    add_row(d_table, scale, d_scale);
  }
  add_gradient(tape, weight, d_weight);
  add_gradient(tape, bias, d_bias);
}

// Of weight and bias of the norm of heads. x: what the norm takes, d: the gradient of what it
// gives; [token, batch, 1, head, channel].
void add_head_norm_parameters(Tape& tape, const TokenRows& rows, const HeadNorm& norm,
                              const Tensor& x, const Tensor& d) {
  const std::int64_t n = x.shape(4), columns = x.shape(3) * n;
  const Tensor ones = constant(x, n, 1);
  const Tensor normalised = norm.bias.empty() ? rms_norm(x, ones, norm.eps)
                                              : layer_norm(x, ones, constant(x, n, 0), norm.eps);
  const auto own = [&](const Tensor& heads) {
    return rows.to_columns(heads.reshape({x.shape(0) * x.shape(1), columns}));
  };
  const Tensor d_norm = own(d);
  const Device host = x.device().host();
  Tensor sums = Tensor::zeros({2, rows.own_columns(columns).count}, DType::float32, host);
  sums.rows(0, 1).copy_from(row_sum(token_sums(d_norm, own(normalised), 0).on(host)));
  if (!norm.bias.empty()) {
    sums.rows(1, 1).copy_from(row_sum(token_sums(d_norm, {}, 0).on(host)));
  }
  const Tensor whole = rows.whole(sums, columns);
  const TokenRows::Range range = rows.own_columns(n);
  const auto of_heads = [&](std::int64_t row) {
    const Tensor sum = row_sum(whole.rows(row, 1).reshape({x.shape(3), n}));
    return ops::columns(sum, range.begin, range.count);
  };
  add_gradient(tape, norm.weight, of_heads(0));
  if (!norm.bias.empty()) add_gradient(tape, norm.bias, of_heads(1));
}

}  // namespace

void record_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                       const Modulation& modulation, Tensor& out) {
  Tape* tape = Tape::of(x, weight, bias, modulation.table);
  if (tape == nullptr) return;
  const bool with_parameters = Tape::of(weight, bias, modulation.table) != nullptr;
  const TokenRows* rows = with_parameters ? &tape->rows() : nullptr;
  tape->record(out, [=](const Tensor& gradient) {
    const Tensor d = gradient.reshape(x.shape());
    if (rows != nullptr) add_norm_parameters(*tape, *rows, x, weight, bias, eps, modulation, d);
    if (Tape::needs(x)) layer_norm_backward(x, weight, eps, modulation, d, tape->sum(x));
  });
}

void record_gate(const Tensor& y, const Gate& gate, Tensor& sum) {
  Tape* tape = Tape::of(sum, y, gate.table);
  if (tape == nullptr) return;
  const bool needs_table = Tape::needs(gate.table);
  const TokenRows* rows = needs_table ? &tape->rows() : nullptr;
  tape->record(sum, [tape, rows, gate, x = TapeValue(sum), taped_y = TapeValue(y),
                     y = needs_table ? y : Tensor()](Tensor d) {
    d = d.reshape(x.shape);
    if (rows != nullptr) {
      const std::int64_t n = d.shape().back();
      const Tensor sums = token_sums(rows->to_columns(as_rows(d)), rows->to_columns(as_rows(y)),
                                     first_of_all(*rows, gate.first))
                              .on(d.device().host());
      Tensor& d_table = chunk_sums(*tape, *rows, gate.table, n);
      if (gate.first.chunks_later > 0) {
        add_row(d_table, gate.chunk + gate.first.chunks_later, sums.rows(0, 1));
      }
      add_row(d_table, gate.chunk, sums.rows(1, 1));
    }
    if (taped_y) add_gradient(*tape, taped_y, gated(d, gate));
    add_gradient(*tape, x, std::move(d));
  });
}

Tensor first_part(const Tensor& x) {
  const Shape& s = x.shape();
  if (s[2] == 1) return x.clone();
  const std::int64_t part = s[3] * s[4];
  return columns(x.reshape({s[0] * s[1], s[2] * part}), 0, part)
      .reshape({s[0], s[1], 1, s[3], s[4]});
}

void record_head_norm(const Tensor& before, const HeadNorm& norm, const Tensor& cosines,
                      const Tensor& sines, std::int64_t unrotated, Tensor& x) {
  Tape* tape = Tape::of(x, norm.weight, norm.bias);
  if (tape == nullptr) return;
  const bool with_parameters = Tape::of(norm.weight, norm.bias) != nullptr;
  const TokenRows* rows = with_parameters ? &tape->rows() : nullptr;
  tape->record(x, [=, x = TapeValue(x)](Tensor d) {
    const Shape& s = x.shape;
    const std::int64_t part = s[3] * s[4];
    const Shape shape{s[0], s[1], 1, s[3], s[4]};
    Tape::own(d);
    Tensor all = d.reshape({s[0] * s[1], s[2] * part});
    Tensor d_part = s[2] == 1 ? d.reshape(shape) : columns(all, 0, part).reshape(shape);
    Tensor d_norm;
    if (rows != nullptr) d_norm = Tensor::empty(shape, d.dtype(), d.device());
    normalise_and_rotate_backward(before.empty() ? d_part : before, norm, cosines, sines, unrotated,
                                  d_part, rows != nullptr ? &d_norm : nullptr);
    if (rows != nullptr) {
      add_head_norm_parameters(*tape, *rows, norm, before.empty() ? d_part : before, d_norm);
    }
    if (s[2] > 1) set_columns(all, 0, as_rows(d_part.reshape({s[0] * s[1], part})));
    add_gradient(*tape, x, std::move(d));
  });
}

}  // namespace reelmesh::ops
