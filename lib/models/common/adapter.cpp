#include "models/common/adapter.hpp"

#include "ops/pointwise.hpp"

namespace reelmesh {

Adapter::Adapter(const std::vector<int>& parts, std::span<const LoraTarget> targets,
                 std::int64_t in, std::int64_t out_of_part, DType dtype, Device device,
                 const Numerics& numerics)
    : in_(in),
      out_(std::ssize(parts) * out_of_part),
      out_of_part_(out_of_part),
      dtype_(dtype),
      device_(device),
      numerics_(numerics) {
  std::int64_t first = 0;
  for (const int number : parts) {
    if (number >= 0) {
      const LoraTarget& target = targets[static_cast<std::size_t>(number)];
      parts_.push_back({number, first, ranks_, target.rank, target.factor()});
      ranks_ += target.rank;
    }
    first += out_of_part;
  }
  expect(!parts_.empty(), "an adapter of no target");
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
  down_ = linear(down);
  down_transposed_ = linear(down_transposed);
  up_ = linear(up);
  up_transposed_ = linear(up_transposed);
}

void Adapter::add_input_gradient(const Tensor& d_hidden, Tensor& dx, std::int64_t all_rows) const {
  ops::add(dx, down_transposed_(d_hidden, none, all_rows));
}

}  // namespace reelmesh
