#include "models/common/linear_layer.hpp"

#include "ops/norm_backward.hpp"
#include "ops/pointwise.hpp"
#include "ops/rows.hpp"
#include "ops/token_products.hpp"

namespace reelmesh {
namespace {

using ops::Activation;

// The products of all elements of d in a range with all of x in another one: [of d, of x].
Tensor outer(const Tensor& d, const TokenRows::Range& rows, const Tensor& x,
             const TokenRows::Range& columns) {
  Tensor out = Tensor::empty({rows.count, columns.count}, DType::float32, d.device());
  for (std::int64_t i = 0; i < out.numel() && !d.device().only_shapes; ++i) {
    out.data<float>()[i] = d.data<float>()[rows.begin + i / columns.count] *
                           x.data<float>()[columns.begin + i % columns.count];
  }
  return out;
}

// This rank's columns of [1, column], copied: it may be a part of sums that change.
Tensor own_columns(const TokenRows& rows, const Tensor& whole) {
  const TokenRows::Range own = rows.own_columns(whole.shape(1));
  return ops::columns(whole, own.begin, own.count).clone();
}

// A parameter as a value on a tape.
TapeValue parameter(std::size_t number) {
  Tensor none;
  Tape::make_parameter(none, number);
  return none;
}

// Of weights and biases. x, d: own tokens [token, channel].
void add_parameters(Tape& tape, const TokenRows& rows, const TrainedLinear& layer, const Tensor& x,
                    const Tensor& d) {
  const Device host = x.device().host();
  const std::int64_t out = d.shape(1) / std::ssize(layer.parameters);
  const Tensor inputs = layer.by_rows ? rows.gather(x) : rows.to_columns(x);
  for (std::size_t i = 0; i < layer.parameters.size(); ++i) {
    const auto& [weight, bias] = layer.parameters[i];
    const Tensor own = ops::columns(d, static_cast<std::int64_t>(i) * out, out);
    const Tensor outputs = layer.by_rows ? rows.to_columns(own) : rows.gather(own);
    tape.set(parameter(weight), ops::token_products(outputs, inputs).on(host));
    const Tensor sums = ops::row_sum(ops::token_sums(outputs, {}, 0).on(host));
    tape.set(parameter(bias), layer.by_rows ? sums : own_columns(rows, sums));
  }
}

// Of a LoRA. x, d, hidden, d_hidden: own tokens [token, channel]; hidden: between A and B.
void add_adapter(Tape& tape, const TokenRows& rows, const Adapter& adapter, const Tensor& x,
                 const Tensor& d, const Tensor& hidden, const Tensor& d_hidden) {
  const Device host = x.device().host();
  const Tensor all_hidden = rows.gather(hidden);
  const Tensor down =
      ops::token_products(rows.gather(d_hidden), rows.to_columns(x)).on(host);
  for (const Adapter::Part& part : adapter.parts()) {
    const Tensor outputs = rows.to_columns(ops::columns(d, part.first_output, adapter.outputs()));
    const Tensor up =
        ops::token_products(ops::columns(all_hidden, part.first_hidden, part.rank), outputs);
    const auto target = static_cast<std::size_t>(part.target);
    tape.set(parameter(2 * target), down.rows(part.first_hidden, part.rank));
    tape.set(parameter(2 * target + 1),
             ops::scaled(up, static_cast<float>(part.factor)).on(host));
  }
}

// The gradients of a layer of tokens. keeps_x: x is empty if nothing needs it.
void add_gradients(Tape& tape, const TokenRows* rows, const TrainedLinear& layer,
                   const TapeValue& of_x, const Tensor& x, Tensor hidden, std::int64_t all_rows,
                   const Tensor& d) {
  Tensor dx;
  if (of_x) {
    layer.note(LayerUse::Kind::backward);
    dx = layer.backward(d, Activation::none, all_rows);
  }
  if (!layer.parameters.empty()) {
    add_parameters(tape, *rows, layer, ops::as_rows(x), ops::as_rows(d));
  }
  if (const Adapter* adapter = layer.adapter.get()) {
    if (hidden.shape() == Shape{0}) hidden = adapter->hidden(x, all_rows);
    const Tensor d_hidden = adapter->hidden_gradient(d, all_rows);
    add_adapter(tape, *rows, *adapter, ops::as_rows(x), ops::as_rows(d), ops::as_rows(hidden),
                ops::as_rows(d_hidden));
    if (of_x) adapter->add_input_gradient(d_hidden, dx, all_rows);
  }
  ops::add_gradient(tape, of_x, std::move(dx));
}

Tensor activated(Tensor y, Activation activation) {
  switch (activation) {
    case Activation::none:
      return y;
    case Activation::silu:
      return ops::silu(y);
    case Activation::gelu_tanh:
      return ops::gelu_tanh(y);
  }
  return y;
}

}  // namespace

Tensor LinearLayer::changed(const ops::Linear& product, const Tensor& x, Tensor* hidden,
                            std::int64_t all_rows) const {
  Tensor y = product(x, Activation::none, all_rows);
  const Adapter* adapter = trained_->adapter.get();
  if (adapter == nullptr) return y;
  *hidden = adapter->hidden(x, all_rows);
  adapter->add(*hidden, y, all_rows);
  return y;
}

Tensor LinearLayer::operator()(const Tensor& x, Activation activation,
                               std::int64_t all_rows) const {
  if (trained_ == nullptr) return product_(x, activation, all_rows);
  const TrainedLinear& layer = *trained_;
  const bool adapted = layer.adapter != nullptr, has_own = adapted || !layer.parameters.empty();
  Tape* tape = Tape::recording();
  const bool is_recorded = tape != nullptr && (has_own || Tape::needs(x));
  const bool is_skipped = is_recorded && tape->skips_change();
  const bool is_again = tape != nullptr && tape->computes_again();
  const ops::Linear& product = is_again ? layer.again : product_;
  if (is_again && !is_skipped) layer.note(LayerUse::Kind::again);
  if (!is_recorded && !adapted) return product(x, activation, all_rows);
  const Tape::Scope paused(nullptr);  // the layer records itself as a whole
  Tensor y, hidden;
  if (is_skipped) {
    Shape shape = x.shape();
    shape.back() = out_features();
    y = Tensor::empty(shape, x.dtype(), x.device());
  } else {
    y = changed(product, x, &hidden, all_rows);
  }
  if (!is_recorded) return activated(std::move(y), activation);
  const TokenRows* rows = has_own ? &tape->rows() : nullptr;
  tape->record(y, [tape, rows, trained = trained_, of_x = TapeValue(x),
                   x = has_own ? x : Tensor(), hidden, all_rows](const Tensor& d) {
    add_gradients(*tape, rows, *trained, of_x, x, hidden, all_rows, d);
  });
  const Tape::Scope recording(tape);
  return activated(std::move(y), activation);
}

Tensor LinearLayer::with_all_rows(const Tensor& x, Activation activation) const {
  Tensor y;
  {
    const Tape::Scope paused(nullptr);
    y = product_.with_all_rows(x, activation);
  }
  Tape* tape = Tape::recording();
  if (trained_ == nullptr || tape == nullptr) return y;
  if (trained_->parameters.empty() && !Tape::needs(x)) return y;
  const TokenRows* rows = &tape->rows();
  tape->record(y, [tape, rows, trained = trained_, product = product_, x,
                   activation](const Tensor& d) {
    const std::int64_t out = product.out_features();
    // Chunks of a table that tokens share, or the row itself.
    Tensor row = (d.shape(0) > 1 ? rows->whole(d, out / d.shape(0)) : d).reshape({1, out});
    if (activation != Activation::none) {
      expect(activation == Activation::silu, "the gradient of an activation of a row");
      const Tensor sums = product.with_all_rows(x);
      row = ops::silu_backward(ops::numbers(sums).reshape(row.shape()), row);
    }
    if (Tape::needs(x)) {
      trained->note(LayerUse::Kind::backward);
      const Tensor dx = trained->backward.with_all_rows(row.to(x.dtype()).on(x.device()));
      ops::add_gradient(*tape, x, ops::numbers(dx).reshape(x.shape()));
    }
    if (trained->parameters.empty()) return;
    const auto& [weight, bias] = trained->parameters.front();
    const Tensor inputs = ops::numbers(x);
    const TokenRows::Range all_in{0, x.numel()}, all_out{0, out};
    tape->set(parameter(weight),
              trained->by_rows ? outer(row, rows->own_columns(out), inputs, all_in)
                               : outer(row, all_out, inputs, rows->own_columns(x.numel())));
    tape->set(parameter(bias), own_columns(*rows, row));
  });
  return y;
}

}  // namespace reelmesh
