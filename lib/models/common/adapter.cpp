#include "models/common/adapter.hpp"

#include "ops/pointwise.hpp"

namespace reelmesh {

Adapter::Adapter(std::vector<int> parts, std::int64_t in, std::int64_t out_of_part,
                 std::int64_t rank, double factor, DType dtype, Device device,
                 const Numerics& numerics)
    : in_(in),
      out_(std::ssize(parts) * out_of_part),
      out_of_part_(out_of_part),
      rank_(rank),
      factor_(factor),
      dtype_(dtype),
      device_(device),
      numerics_(numerics) {
  std::int64_t first = 0;
  for (const int target : parts) {
    if (target >= 0) parts_.push_back({target, first});
    first += out_of_part;
  }
  expect(!parts_.empty(), "an adapter of no target");
}

ops::Linear Adapter::linear(const Tensor& values) const {
  return ops::Linear(values.to(dtype_).on(device_), {}, numerics_);
}

void Adapter::set(std::span<const LoraValues> values) {
  const std::int64_t ranks = std::ssize(parts_) * rank_;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return Tensor::zeros({rows, columns}, DType::float32, device_.host());
  };
  Tensor down = matrix(ranks, in_), down_transposed = matrix(in_, ranks);
  Tensor up = matrix(out_, ranks), up_transposed = matrix(ranks, out_);
  for (std::size_t p = 0; p < parts_.size() && !device_.only_shapes; ++p) {
    const LoraValues& part = values[static_cast<std::size_t>(parts_[p].target)];
    expect(part.down.shape() == Shape{rank_, in_} && part.up.shape() == Shape{rank_, out_of_part_},
           "values {} and {} of a LoRA of {} inputs and {} outputs", part.down.shape(),
           part.up.shape(), in_, out_of_part_);
    for (std::int64_t r = 0; r < rank_; ++r) {
      const std::int64_t row = static_cast<std::int64_t>(p) * rank_ + r;
      for (std::int64_t i = 0; i < in_; ++i) {
        const float value = part.down.data<float>()[r * in_ + i];
        down.data<float>()[row * in_ + i] = value;
        down_transposed.data<float>()[i * ranks + row] = value;
      }
      for (std::int64_t o = 0; o < out_of_part_; ++o) {
        const float value =
            static_cast<float>(factor_ * double{part.up.data<float>()[r * out_of_part_ + o]});
        const std::int64_t output = parts_[p].first_output + o;
        up.data<float>()[output * ranks + row] = value;
        up_transposed.data<float>()[row * out_ + output] = value;
      }
    }
  }
  down_ = linear(down);
  down_transposed_ = linear(down_transposed);
  up_ = linear(up);
  up_transposed_ = linear(up_transposed);
}

void Adapter::add(const Tensor& hidden, Tensor& y, std::int64_t all_rows) const {
  ops::add(y, up_(hidden, none, all_rows));
}

void Adapter::add_input_gradient(const Tensor& d_hidden, Tensor& dx, std::int64_t all_rows) const {
  ops::add(dx, down_transposed_(d_hidden, none, all_rows));
}

}  // namespace reelmesh
