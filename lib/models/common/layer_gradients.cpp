#include "models/common/layer_gradients.hpp"

#include <cmath>

#include "ops/token_products.hpp"

namespace reelmesh {

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

Tensor side_by_side(const Tensor& a, const Tensor& b) {
  const std::int64_t rows = a.shape(0), left = a.shape(1), right = b.shape(1);
  Tensor out = Tensor::empty({rows, left + right}, a.dtype(), a.device());
  const Box whole{{0, 0}, out.shape()};
  const Box first{{0, 0}, {rows, left}}, second{{0, left}, {rows, right}};
  copy_box(first, a, first, out, whole);
  copy_box(second, b, second, out, whole);
  return out;
}

Tensor row_sum(const Tensor& x) {
  const std::int64_t columns = x.shape(1);
  Tensor out = Tensor::zeros({1, columns}, DType::float32, x.device());
  for (std::int64_t i = 0; i < x.numel() && !x.device().only_shapes; ++i) {
    out.data<float>()[i % columns] += x.data<float>()[i];
  }
  return out;
}

Tensor through_silu(const Tensor& d, const Tensor& x) {
  Tensor out = Tensor::empty(d.shape(), DType::float32, d.device());
  for (std::int64_t i = 0; i < d.numel() && !d.device().only_shapes; ++i) {
    const double value = x.data<float>()[i], s = 1 / (1 + std::exp(-value));
    out.data<float>()[i] =
        static_cast<float>(double{d.data<float>()[i]} * s * (1 + value * (1 - s)));
  }
  return out;
}

void LayerGradients::by_outputs(const std::string& module, const Tensor& x, const Tensor& d) const {
  take(module + ".weight", ops::token_products(d, x).on(host_));
  take(module + ".bias", row_sum(ops::token_sums(d, {}, 0).on(host_)));
}

void LayerGradients::by_inputs(const std::string& module, const Tensor& x, const Tensor& d) const {
  take(module + ".weight", ops::token_products(d, x).on(host_));
  take_own(module + ".bias", row_sum(ops::token_sums(d, {}, 0).on(host_)));
}

namespace {

// The products of all elements of d in a range with all of x in another one: [of d, of x].
Tensor outer(const Tensor& d, const TokenColumns::Range& rows, const Tensor& x,
             const TokenColumns::Range& columns) {
  Tensor out = Tensor::empty({rows.count, columns.count}, DType::float32, d.device());
  for (std::int64_t i = 0; i < out.numel() && !d.device().only_shapes; ++i) {
    out.data<float>()[i] = d.data<float>()[rows.begin + i / columns.count] *
                           x.data<float>()[columns.begin + i % columns.count];
  }
  return out;
}

}  // namespace

void LayerGradients::row_by_outputs(const std::string& module, const Tensor& x,
                                    const Tensor& d) const {
  take(module + ".weight", outer(d, columns_.own_columns(d.numel()), x, {0, x.numel()}));
  take_own(module + ".bias", d.reshape({1, d.numel()}));
}

void LayerGradients::row_by_inputs(const std::string& module, const Tensor& x,
                                   const Tensor& d) const {
  take(module + ".weight", outer(d, {0, d.numel()}, x, columns_.own_columns(x.numel())));
  take_own(module + ".bias", d.reshape({1, d.numel()}));
}

void LayerGradients::take_own(const std::string& name, const Tensor& whole) const {
  // A copy: it may be a part of sums that change.
  take(name, column_range(whole, columns_.own_columns(whole.shape(1))).clone());
}

Tensor LayerGradients::whole_together(const Tensor& own, std::int64_t channels) const {
  const TrainedMatrix rows{.rows = own.shape(0), .columns = channels};
  const Layout cut = rows.layout(columns_, group_.size());
  return relayout({own, cut, group_}, Layout::replicated(cut.global(), group_.size())).local;
}

}  // namespace reelmesh
