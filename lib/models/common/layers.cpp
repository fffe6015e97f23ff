#include "models/common/layers.hpp"

#include <cstring>

namespace reelmesh {

ops::Linear load_linear(const Checkpoint& weights, const std::string& name, std::int64_t in,
                        std::int64_t out, DType dtype, bool bias) {
  return load_linears(weights, {name}, in, out, dtype, bias);
}

ops::Linear load_linears(const Checkpoint& weights, const std::vector<std::string>& names,
                         std::int64_t in, std::int64_t out, DType dtype, bool bias) {
  const auto joined = [&](const std::string& suffix, const Shape& shape) {
    if (names.size() == 1) return weights.load(names[0] + suffix, shape, dtype);
    Shape all = shape;
    all[0] *= static_cast<std::int64_t>(names.size());
    const Tensor result = Tensor::empty(all, dtype);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Tensor part = weights.load(names[i] + suffix, shape, dtype);
      std::memcpy(result.rows(static_cast<std::int64_t>(i) * shape[0], shape[0]).raw(), part.raw(),
                  static_cast<std::size_t>(part.bytes()));
    }
    return result;
  };
  return ops::Linear(joined(".weight", {out, in}), bias ? joined(".bias", {out}) : Tensor());
}

Affine load_affine(const Checkpoint& weights, const std::string& name, std::int64_t channels,
                   DType dtype) {
  const auto load = [&](const std::string& suffix) {
    return weights.load(name + suffix, {channels}, dtype).to(DType::float32);
  };
  return {load(".weight"), load(".bias")};
}

}  // namespace reelmesh
