#include "models/autoencoder/layers.hpp"

#include "ops/pointwise.hpp"

namespace reelmesh {

ops::Convolution load_convolution(const Checkpoint& weights, const std::string& name,
                                  std::int64_t in, std::int64_t out, std::int64_t kernel_axes,
                                  DType dtype, bool bias) {
  Shape shape{out, in};
  shape.insert(shape.end(), static_cast<std::size_t>(kernel_axes), 3);
  return {weights.load(name + ".weight", shape, dtype),
          bias ? weights.load(name + ".bias", {out}, dtype)
               : Tensor::zeros({out}, dtype, weights.device()),
          weights.numerics()};
}

ResidualBlock::ResidualBlock(const Checkpoint& weights, const std::string& name, std::int64_t in,
                             std::int64_t out, const ResidualKind& kind, DType dtype)
    : groups_(kind.groups),
      eps_(kind.eps),
      norm1_(load_affine(weights, name + ".norm1", in, dtype)),
      norm2_(load_affine(weights, name + ".norm2", out, dtype)) {
  const auto convolution = [&](const char* part, std::int64_t channels) {
    return load_convolution(weights, name + part + kind.suffix, channels, out, kind.kernel_axes,
                            dtype, kind.bias);
  };
  conv1_ = convolution(".conv1", in);
  conv2_ = convolution(".conv2", out);
  if (in == out) return;
  shortcut_ = load_pointwise(weights, fmt::format("{}.{}{}", name, kind.shortcut, kind.suffix), in,
                             out, kind.kernel_axes, dtype, kind.bias);
}

Tensor ResidualBlock::operator()(const ImagePart& image, const Tensor& x) const {
  const auto half = [&](const Affine& norm, const ops::Convolution& convolution, const Tensor& in) {
    return image.convolve(convolution, image.group_norm(in, norm, groups_, eps_, true));
  };
  Tensor out = half(norm2_, conv2_, half(norm1_, conv1_, x));
  ops::add(out, shortcut_.out_features() > 0 ? shortcut_(x) : x);
  return out;
}

}  // namespace reelmesh
