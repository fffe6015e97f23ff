#include "models/common/adapter.hpp"

#include "ops/pointwise.hpp"
#include "ops/rows.hpp"
#include "ops/token_products.hpp"

namespace reelmesh {

Adapter::Adapter(const std::vector<int>& parts, std::span<const LoraTarget> targets,
                 std::int64_t in, std::int64_t out_of_part, DType dtype, Device device,
                 const Numerics& numerics, std::shared_ptr<const LoraDropout> dropout)
    : in_(in),
      out_(std::ssize(parts) * out_of_part),
      out_of_part_(out_of_part),
      dtype_(dtype),
      device_(device),
      numerics_(numerics),
      dropout_(std::move(dropout)) {
  std::int64_t first = 0;
  for (const int number : parts) {
    if (number >= 0) {
      const LoraTarget& target = targets[static_cast<std::size_t>(number)];
      parts_.push_back({number, first, ranks_, target.rank, target.factor()});
      if (dropout_->probability > 0)
        inputs_.push_back({target.module, ranks_, target.rank, {}, {}});
      ranks_ += target.rank;
    }
    first += out_of_part;
  }
  expect(!parts_.empty(), "an adapter of no target");
  if (inputs_.empty()) inputs_.push_back({{}, 0, ranks_, {}, {}});
}

ops::Linear Adapter::linear(const Tensor& values) const {
  return ops::Linear(values.to(dtype_).on(device_), {}, numerics_);
}

void Adapter::set(std::span<const LoraValues> values) {
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return Tensor::zeros({rows, columns}, DType::float32, device_.host());
  };
  Tensor down = matrix(ranks_, in_), down_transposed = matrix(in_, ranks_);
  Tensor up = matrix(out_, ranks_), up_transposed = matrix(ranks_, out_);
  for (std::size_t p = 0; p < parts_.size() && !device_.only_shapes; ++p) {
    const Part& part = parts_[p];
    const LoraValues& of_part = values[static_cast<std::size_t>(part.target)];
    expect(of_part.down.shape() == Shape{part.rank, in_} &&
               of_part.up.shape() == Shape{part.rank, out_of_part_},
           "values {} and {} of a LoRA of rank {}, {} inputs and {} outputs", of_part.down.shape(),
           of_part.up.shape(), part.rank, in_, out_of_part_);
    for (std::int64_t r = 0; r < part.rank; ++r) {
      const std::int64_t row = part.first_hidden + r;
      for (std::int64_t i = 0; i < in_; ++i) {
        const float value = of_part.down.data<float>()[r * in_ + i];
        down.data<float>()[row * in_ + i] = value;
        down_transposed.data<float>()[i * ranks_ + row] = value;
      }
      for (std::int64_t o = 0; o < out_of_part_; ++o) {
        const float value = static_cast<float>(
            part.factor * double{of_part.up.data<float>()[r * out_of_part_ + o]});
        const std::int64_t output = part.first_output + o;
        up.data<float>()[output * ranks_ + row] = value;
        up_transposed.data<float>()[row * out_ + output] = value;
      }
    }
  }
  for (Input& input : inputs_) {
    input.down = linear(down.rows(input.first_hidden, input.ranks));
    input.down_transposed = linear(ops::columns(down_transposed, input.first_hidden, input.ranks));
  }
  up_ = linear(up);
  up_transposed_ = linear(up_transposed);
}

Tensor Adapter::dropped(const Input& input, const Tensor& x, const TokenRows* rows,
                        std::int64_t first_column) const {
  if (dropout_->probability == 0 || !dropout_->sample) return x;
  const std::uint64_t seed = dropout_->seed + static_cast<std::uint64_t>(*dropout_->sample);
  const ops::DropoutMask mask{.probability = dropout_->probability,
                              .key = ops::random_key(input.module + ".dropout", seed),
                              .columns = in_};
  return ops::dropped(x, mask, rows != nullptr ? rows->numbers(x.device()) : Tensor(),
                      first_column);
}

Tensor Adapter::hidden(const Tensor& x, const TokenRows* rows, std::int64_t all_rows) const {
  const auto of = [&](const Input& input) {
    return input.down(dropped(input, x, rows), none, all_rows);
  };
  if (inputs_.size() == 1) return of(inputs_.front());
  Shape shape = x.shape();
  shape.back() = ranks_;
  Tensor all = Tensor::empty(shape, x.dtype(), x.device()), rows_of_all = ops::as_rows(all);
  for (const Input& input : inputs_) {
    ops::set_columns(rows_of_all, input.first_hidden, ops::as_rows(of(input)));
  }
  return all;
}

void Adapter::add_input_gradient(const Tensor& d_hidden, Tensor& dx, const TokenRows* rows,
                                 std::int64_t all_rows) const {
  for (const Input& input : inputs_) {
    const Tensor d = ops::columns(d_hidden, input.first_hidden, input.ranks);
    ops::add(dx, dropped(input, input.down_transposed(d, none, all_rows), rows));
  }
}

Tensor Adapter::down_gradient(const Tensor& d_hidden, const Tensor& x,
                              std::int64_t first_column) const {
  std::vector<Tensor> of_inputs;
  for (const Input& input : inputs_) {
    const Tensor d = ops::columns(d_hidden, input.first_hidden, input.ranks);
    of_inputs.push_back(ops::token_products(d, dropped(input, x, nullptr, first_column)));
  }
  return ops::join_rows(of_inputs);
}

}  // namespace reelmesh
