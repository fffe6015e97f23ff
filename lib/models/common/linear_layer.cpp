#include "models/common/linear_layer.hpp"

#include "layout/whole_rows.hpp"
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

TapeValue parameter(std::size_t number) {
  Tensor value;
  Tape::make_parameter(value, number);
  return value;
}

Tensor activation_of(const Tensor& y, Activation activation) {
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

// d [row, output] with outputs [channel, pixel] → [pixel, channel], as in checkpoints.
Tensor channels_last(const Tensor& d, std::int64_t channels) {
  const Tensor from = ops::numbers(d);
  Tensor out = Tensor::empty(d.shape(), DType::float32, from.device());
  const std::int64_t outputs = d.shape(1), pixels = outputs / channels;
  for (std::int64_t i = 0; i < d.numel() && !from.device().only_shapes; ++i) {
    const std::int64_t row = i / outputs, at = i % outputs;
    out.data<float>()[row * outputs + at % pixels * channels + at / pixels] = from.data<float>()[i];
  }
  return out.to(d.dtype()).on(d.device());
}

// A call of a layer that has recorded itself.
struct Call {
  std::shared_ptr<const TrainedLinear> layer;
  const TokenRows* rows;  // null: the layer has no parameters
  bool is_whole;          // every rank has all rows
  std::int64_t all_rows;
  TapeValue of_x;
  Tensor x;                          // empty: nothing reads it
  std::shared_ptr<MovedRows> moved;  // of x, for all layers that read it
  Tensor hidden;                     // between A and B of the LoRA; empty: to be computed
  // Of each piece, until all are there.
  std::vector<Tensor> d;

  bool is_last_reader() const { return moved.use_count() == 1; }
  void add_gradients(Tape& tape) const;
  void add_parameters(Tape& tape, const TokenRows& of, const Tensor& all_d) const;
  Tensor add_adapter(Tape& tape, const TokenRows& of, const Tensor& all_d) const;
};

void Call::add_parameters(Tape& tape, const TokenRows& of, const Tensor& all_d) const {
  const Device host = x.device().host();
  const std::int64_t out = all_d.shape(1) / std::ssize(layer->parameters);
  const Tensor rows_of_x = ops::as_rows(x);
  const Tensor inputs = layer->by_rows ? moved->gather(of, rows_of_x, is_last_reader())
                                       : moved->to_columns(of, rows_of_x, is_last_reader());
  for (std::size_t i = 0; i < layer->parameters.size(); ++i) {
    const auto& [weight, bias] = layer->parameters[i];
    Tensor own = ops::columns(all_d, static_cast<std::int64_t>(i) * out, out);
    if (layer->channels_first > 0) own = channels_last(own, layer->channels_first);
    const Tensor outputs = layer->by_rows ? of.to_columns(own) : of.gather(own);
    tape.set(parameter(weight), ops::token_products(outputs, inputs).on(host));
    const Tensor sums = ops::row_sum(ops::token_sums(outputs, {}, 0).on(host));
    tape.set(parameter(bias), layer->by_rows ? sums : own_columns(of, sums));
  }
}

// → the gradient of `hidden`.
Tensor Call::add_adapter(Tape& tape, const TokenRows& of, const Tensor& all_d) const {
  const Adapter& adapter = *layer->adapter;
  const Device host = x.device().host();
  Tensor d_hidden = adapter.hidden_gradient(all_d, all_rows);
  const bool is_computed = hidden.shape() != Shape{0};
  const Tensor all_hidden =
      of.gather(ops::as_rows(is_computed ? hidden : adapter.hidden(x, &of, all_rows)));
  const Tensor inputs = moved->to_columns(of, ops::as_rows(x), is_last_reader());
  const Tensor down =
      adapter.down_gradient(of.gather(d_hidden), inputs, of.own_columns(x.shape().back()).begin)
          .on(host);
  for (const Adapter::Part& part : adapter.parts()) {
    const Tensor outputs = of.to_columns(ops::columns(all_d, part.first_output, adapter.outputs()));
    const Tensor up =
        ops::token_products(ops::columns(all_hidden, part.first_hidden, part.rank), outputs);
    const auto target = static_cast<std::size_t>(part.target);
    tape.set(parameter(2 * target), down.rows(part.first_hidden, part.rank));
    tape.set(parameter(2 * target + 1), ops::scaled(up, static_cast<float>(part.factor)).on(host));
  }
  return d_hidden;
}

void Call::add_gradients(Tape& tape) const {
  Tensor dx;
  for (std::size_t piece = d.size(); of_x && piece-- > 0;) {
    layer->note(piece, LayerUse::Kind::backward);
    const Tensor part = layer->backward[piece](d[piece], Activation::none, all_rows);
    if (dx.shape() == Shape{0}) {
      dx = part;
    } else {
      ops::add(dx, part);
    }
  }
  if (rows != nullptr) {
    Tensor all_d = ops::as_rows(d.front());
    if (d.size() > 1) {
      std::int64_t width = 0;
      for (const Tensor& piece : d) width += piece.shape().back();
      all_d = Tensor::empty({all_d.shape(0), width}, all_d.dtype(), all_d.device());
      std::int64_t begin = 0;
      for (const Tensor& piece : d) {
        ops::set_columns(all_d, begin, ops::as_rows(piece));
        begin += piece.shape().back();
      }
    }
    const WholeRows whole(*rows);
    const TokenRows& of = is_whole ? static_cast<const TokenRows&>(whole) : *rows;
    if (!layer->parameters.empty()) add_parameters(tape, of, all_d);
    if (layer->adapter != nullptr) {
      const Tensor d_hidden = add_adapter(tape, of, all_d);
      if (of_x) {
        Tensor rows_of_dx = ops::as_rows(dx);
        layer->adapter->add_input_gradient(d_hidden, rows_of_dx, &of, all_rows);
      }
    }
  }
  ops::add_gradient(tape, of_x, std::move(dx));
}

}  // namespace

std::vector<Tensor> LinearLayer::sums(const Tensor& x, std::int64_t all_rows, Rows rows) const {
  Tape* tape = Tape::recording();
  const bool has_own = trained_ != nullptr && trained_->has_parameters();
  const bool is_recorded = tape != nullptr && trained_ != nullptr && (has_own || Tape::needs(x));
  const bool is_skipped = is_recorded && tape->skips_change();
  const bool is_again = trained_ != nullptr && tape != nullptr && tape->computes_again();
  std::vector<Tensor> results;
  Tensor hidden;
  {
    const Tape::Scope paused(nullptr);
    for (std::size_t i = 0; i < products_.size(); ++i) {
      const ops::Linear& product = is_again ? trained_->again[i] : products_[i];
      if (is_skipped) {
        Shape shape = x.shape();
        shape.back() = product.out_features();
        results.push_back(Tensor::empty(shape, x.dtype(), x.device()));
        continue;
      }
      if (is_again) trained_->note(i, LayerUse::Kind::again);
      results.push_back(product(x, none, all_rows));
    }
    if (has_own && trained_->adapter != nullptr && !is_skipped) {
      const Adapter& adapter = *trained_->adapter;
      hidden = adapter.hidden(x, rows == Rows::whole ? nullptr : &Tape::rows(), all_rows);
      const Tensor change = adapter.change(hidden, all_rows);
      std::int64_t begin = 0;
      for (Tensor& piece : results) {
        const std::int64_t width = piece.shape().back();
        ops::add(piece, ops::columns(ops::as_rows(change), begin, width).reshape(piece.shape()));
        begin += width;
      }
    }
  }
  if (!is_recorded) return results;
  std::shared_ptr<MovedRows> moved;
  if (has_own) {
    moved = rows == Rows::whole ? std::make_shared<MovedRows>() : tape->moved_rows(x);
  }
  const auto call = std::make_shared<Call>(Call{.layer = trained_,
                                                .rows = has_own ? &tape->rows() : nullptr,
                                                .is_whole = rows == Rows::whole,
                                                .all_rows = all_rows,
                                                .of_x = x,
                                                .x = has_own ? x : Tensor(),
                                                .moved = moved,
                                                .hidden = hidden,
                                                .d = std::vector<Tensor>(results.size())});
  // The first piece has its gradient last.
  for (std::size_t i = 0; i < results.size(); ++i) {
    tape->record(results[i], [tape, call, i, shape = results[i].shape()](const Tensor& d) {
      call->d[i] = d.reshape(shape);
      if (i == 0) call->add_gradients(*tape);
    });
  }
  return results;
}

Tensor LinearLayer::activated(const Tensor& x, Activation activation, std::int64_t all_rows,
                              Rows rows) const {
  if (trained_ == nullptr && activation != none) {
    return products_.front()(x, activation, all_rows);
  }
  // Gradients need the sums as they are, rounded to the model's type before the activation; so all
  // passes of a training round them.
  return activation_of(sums(x, all_rows, rows).front(), activation);
}

Tensor LinearLayer::operator()(const Tensor& x, Activation activation,
                               std::int64_t all_rows) const {
  return activated(x, activation, all_rows, Rows::of_tokens);
}

std::vector<Tensor> LinearLayer::pieces(const Tensor& x, std::int64_t all_rows) const {
  return sums(x, all_rows, Rows::of_tokens);
}

Tensor LinearLayer::of_whole(const Tensor& x, Activation activation) const {
  const std::int64_t rows = x.numel() / x.shape().back();
  return activated(x, activation, rows, Rows::whole);
}

Tensor LinearLayer::of_row(const Tensor& x, Activation activation) const {
  if (trained_ == nullptr || trained_->parameters.empty()) {
    expect(trained_ == nullptr || !Tape::needs(x), "the gradient of a row of a constant layer");
    return products_.front().with_all_rows(x, activation);
  }
  Tensor y;
  {
    const Tape::Scope paused(nullptr);
    y = products_.front().with_all_rows(x);
  }
  if (Tape* tape = Tape::recording()) {
    const TokenRows* rows = &tape->rows();
    tape->record(y, [tape, rows, layer = trained_, x](const Tensor& d) {
      const std::int64_t out = d.numel(), in = x.numel();
      const Tensor row = d.reshape({1, out}), inputs = ops::numbers(x);
      if (Tape::needs(x)) {
        layer->note(0, LayerUse::Kind::backward);
        const Tensor dx = layer->backward.front().with_all_rows(row.to(x.dtype()).on(x.device()));
        ops::add_gradient(*tape, x, ops::numbers(dx).reshape(x.shape()));
      }
      const auto& [weight, bias] = layer->parameters.front();
      tape->set(parameter(weight), layer->by_rows
                                       ? outer(row, rows->own_columns(out), inputs, {0, in})
                                       : outer(row, {0, out}, inputs, rows->own_columns(in)));
      tape->set(parameter(bias), own_columns(*rows, row));
    });
  }
  return activation_of(y, activation);
}

}  // namespace reelmesh
