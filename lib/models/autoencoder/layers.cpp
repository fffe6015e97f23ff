#include "models/autoencoder/layers.hpp"

#include "ops/pointwise.hpp"

namespace reelmesh {

ops::Convolution load_convolution(const Checkpoint& weights, const std::string& name,
                                  std::int64_t in, std::int64_t out, std::int64_t kernel_axes,
                                  DType dtype, bool bias, const ops::Window& window) {
  Shape shape{out, in};
  shape.insert(shape.end(), static_cast<std::size_t>(kernel_axes), 3);
  return {weights.load(name + ".weight", shape, dtype),
          bias ? weights.load(name + ".bias", {out}, dtype)
               : Tensor::zeros({out}, dtype, weights.device()),
          weights.numerics(), window};
}

std::vector<float> load_channel_values(const Checkpoint& weights, const std::string& name,
                                       const Shape& shape, DType dtype) {
  const Device host = weights.device().host();
  const Tensor values = weights.load(name, shape, dtype).to(DType::float32).on(host);
  if (host.only_shapes) return std::vector<float>(static_cast<std::size_t>(values.numel()));
  return {values.span<float>().begin(), values.span<float>().end()};
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

std::vector<ResidualBlock> load_residuals(const Checkpoint& weights, const std::string& name,
                                          std::int64_t count, std::int64_t in, std::int64_t out,
                                          const ResidualKind& kind, DType dtype) {
  std::vector<ResidualBlock> residuals;
  for (std::int64_t i = 0; i < count; ++i, in = out) {
    residuals.emplace_back(weights, fmt::format("{}.{}", name, i), in, out, kind, dtype);
  }
  return residuals;
}

MiddleBlock::MiddleBlock(const Checkpoint& weights, const std::string& name, std::int64_t channels,
                         const ResidualKind& kind, DType dtype)
    : numerics_(weights.numerics()), groups_(kind.groups), eps_(kind.eps) {
  residuals_ = load_residuals(weights, name + ".resnets", 2, channels, channels, kind, dtype);
  const std::string attention = name + ".attentions.0.";
  norm_ = load_affine(weights, attention + "group_norm", channels, dtype);
  query_ = load_linear(weights, attention + "to_q", channels, channels, dtype);
  key_value_ =
      load_linears(weights, {attention + "to_k", attention + "to_v"}, channels, channels, dtype);
  out_ = load_linear(weights, attention + "to_out.0", channels, channels, dtype);
}

Tensor MiddleBlock::attend(const ImagePart& image, const Tensor& x) const {
  const Tensor normed = image.group_norm(x, norm_, groups_, eps_, false);
  Tensor out = out_(image.attend(query_(normed), key_value_(normed), numerics_));
  ops::add(out, x);
  return out;
}

Tensor MiddleBlock::operator()(const ImagePart& image, const Tensor& x) const {
  return residuals_[1](image, attend(image, residuals_[0](image, x)));
}

}  // namespace reelmesh
