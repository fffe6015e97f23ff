#include "models/common/layers.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace reelmesh {

ops::Linear load_linear(const Checkpoint& weights, const std::string& name, std::int64_t in,
                        std::int64_t out, DType dtype, bool bias) {
  return load_linears(weights, {name}, in, out, dtype, bias);
}

ops::Linear load_pointwise(const Checkpoint& weights, const std::string& name, std::int64_t in,
                           std::int64_t out, std::int64_t kernel_axes, DType dtype, bool bias) {
  Shape shape{out, in};
  shape.insert(shape.end(), static_cast<std::size_t>(kernel_axes), 1);
  return ops::Linear(weights.load(name + ".weight", shape, dtype).reshape({out, in}),
                     bias ? weights.load(name + ".bias", {out}, dtype) : Tensor(),
                     weights.numerics());
}

ops::Linear load_linears(const Checkpoint& weights, const std::vector<std::string>& names,
                         std::int64_t in, std::int64_t out, DType dtype, bool bias) {
  const LinearParameters layer = linear_parameters(weights, names, in, out, dtype, bias);
  return ops::Linear(layer.weight, layer.bias);
}

namespace {

// Of the concatenated weights, if all are stored in the same type of 8 bits.
std::shared_ptr<const Float8Rows> float8_rows(const Checkpoint& weights,
                                              const std::vector<std::string>& names,
                                              const Shape& shape) {
  std::vector<Float8Rows> parts;
  for (const std::string& name : names) {
    std::optional<Float8Rows> rows = weights.float8_rows(name + ".weight", shape);
    if (!rows || (!parts.empty() && parts.front().values != rows->values)) return nullptr;
    parts.push_back(*std::move(rows));
  }
  if (parts.size() == 1) return std::make_shared<const Float8Rows>(std::move(parts.front()));
  Float8Rows all{.values = parts.front().values, .factors = {}, .read = {}};
  for (const Float8Rows& part : parts) {
    all.factors.insert(all.factors.end(), part.factors.begin(), part.factors.end());
  }
  const std::int64_t out = shape[0], row = numel(shape) / out;
  all.read = [parts = std::move(parts), out, row](std::int64_t first, std::int64_t count,
                                                  std::byte* into) {
    while (count > 0) {
      const std::int64_t some = std::min(count, out - first % out);
      parts[static_cast<std::size_t>(first / out)].read(first % out, some, into);
      into += some * row;
      first += some;
      count -= some;
    }
  };
  return std::make_shared<const Float8Rows>(std::move(all));
}

}  // namespace

LinearParameters linear_parameters(const Checkpoint& weights, const std::vector<std::string>& names,
                                   std::int64_t in, std::int64_t out, DType dtype, bool bias,
                                   const Shape& stored) {
  const auto parts = static_cast<std::int64_t>(names.size());
  const Shape shape = stored.empty() ? Shape{out, in} : stored;
  // Reads rows of the concatenated weights.
  const auto read = [weights, names, shape, out, dtype](std::int64_t first, std::int64_t count,
                                                        void* into, std::int64_t stride) {
    while (count > 0) {
      const std::string& name = names.at(static_cast<std::size_t>(first / out));
      const std::int64_t row = first % out, some = std::min(count, out - row);
      weights.read_rows(name + ".weight", shape, row, some, dtype, into, stride);
      into = static_cast<std::byte*>(into) + some * stride * size_of(dtype);
      first += some;
      count -= some;
    }
  };
  LinearParameters layer{{in, parts * out, dtype, read, weights.device(), weights.numerics(),
                          float8_rows(weights, names, shape)},
                         {}};
  for (const std::string& name : names) weights.ask(name + ".weight", shape);
  if (bias) {
    const Device host = weights.device().host();
    layer.bias = Tensor::empty({parts * out}, dtype, host);
    for (std::int64_t i = 0; i < parts; ++i) {
      const std::string name = names.at(static_cast<std::size_t>(i)) + ".bias";
      weights.ask(name, {out});
      if (host.only_shapes) continue;
      weights.read_rows(name, {out}, 0, out, dtype, layer.bias.rows(i * out, out).raw(), 1);
    }
  }
  return layer;
}

Tensor channel_first(const Tensor& x, std::int64_t channels) {
  const std::int64_t rows = x.shape(0), groups = rows / channels;
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t into = row % channels * groups + row / channels;
    out.rows(into, 1).copy_from(x.rows(row, 1));
  }
  return out;
}

Affine load_affine(const Checkpoint& weights, const std::string& name, std::int64_t channels,
                   DType dtype) {
  const auto load = [&](const std::string& suffix) {
    return weights.load(name + suffix, {channels}, dtype).to(DType::float32);
  };
  return {load(".weight"), load(".bias")};
}

}  // namespace reelmesh
