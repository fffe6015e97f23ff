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

ops::Linear Adapter::linear(std::vector<float> values, std::int64_t rows,
                            std::int64_t columns) const {
  if (device_.only_shapes) {
    return ops::Linear(Tensor::empty({rows, columns}, dtype_, device_), {}, numerics_);
  }
  const Tensor all = Tensor::of(std::span<const float>(values), {rows, columns});
  return ops::Linear(all.to(dtype_).on(device_), {}, numerics_);
}

void Adapter::set(std::span<const LoraValues> values) {
  const std::int64_t ranks = std::ssize(parts_) * rank_;
  const auto size = static_cast<std::size_t>(device_.only_shapes ? 0 : ranks * in_);
  const auto up_size = static_cast<std::size_t>(device_.only_shapes ? 0 : ranks * out_);
  std::vector<float> down(size), down_transposed(size), up(up_size), up_transposed(up_size);
  for (std::size_t p = 0; p < parts_.size() && !device_.only_shapes; ++p) {
    const LoraValues& part = values[static_cast<std::size_t>(parts_[p].target)];
    expect(part.down.shape() == Shape{rank_, in_} && part.up.shape() == Shape{rank_, out_of_part_},
           "values {} and {} of a LoRA of {} inputs and {} outputs", part.down.shape(),
           part.up.shape(), in_, out_of_part_);
    for (std::int64_t r = 0; r < rank_; ++r) {
      const std::int64_t row = static_cast<std::int64_t>(p) * rank_ + r;
      for (std::int64_t i = 0; i < in_; ++i) {
        const float value = part.down.data<float>()[r * in_ + i];
        down[static_cast<std::size_t>(row * in_ + i)] = value;
        down_transposed[static_cast<std::size_t>(i * ranks + row)] = value;
      }
      for (std::int64_t o = 0; o < out_of_part_; ++o) {
        const float value =
            static_cast<float>(factor_ * double{part.up.data<float>()[r * out_of_part_ + o]});
        const std::int64_t output = parts_[p].first_output + o;
        up[static_cast<std::size_t>(output * ranks + row)] = value;
        up_transposed[static_cast<std::size_t>(row * out_ + output)] = value;
      }
    }
  }
  down_ = linear(std::move(down), ranks, in_);
  down_transposed_ = linear(std::move(down_transposed), in_, ranks);
  up_ = linear(std::move(up), out_, ranks);
  up_transposed_ = linear(std::move(up_transposed), ranks, out_);
}

void Adapter::add(const Tensor& hidden, Tensor& y, std::int64_t all_rows) const {
  ops::add(y, up_(hidden, none, all_rows));
}

void Adapter::add_input_gradient(const Tensor& d_hidden, Tensor& dx, std::int64_t all_rows) const {
  ops::add(dx, down_transposed_(d_hidden, none, all_rows));
}

}  // namespace reelmesh
