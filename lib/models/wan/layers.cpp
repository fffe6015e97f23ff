#include "models/wan/layers.hpp"

#include <utility>

#include "models/common/layers.hpp"
#include "ops/norm.hpp"
#include "ops/pointwise.hpp"
#include "tensor/strided_copy.hpp"

namespace reelmesh {

Tensor load_wan_norm(const Checkpoint& weights, const std::string& name, std::int64_t channels,
                     DType dtype, bool images) {
  const Shape shape = images ? Shape{channels, 1, 1} : Shape{channels, 1, 1, 1};
  return weights.load(name + ".gamma", shape, dtype).reshape({channels});
}

// ‖x‖²/channels is the mean of the squares. Where the norm is below 1e-12, so is the result.
Tensor wan_norm(const Tensor& x, const Tensor& gamma) {
  return ops::rms_norm(x, gamma, 1e-24F / static_cast<float>(gamma.numel()));
}

Tensor wan_norm_silu(const Tensor& x, const Tensor& gamma) { return ops::silu(wan_norm(x, gamma)); }

namespace {

// From pixels [frame, row, column, channel] to their patches, of which there are rows × columns.
gpu::StridedCopy patching(const Shape& pixels, std::int64_t p) {
  const std::int64_t lines = pixels[0] * pixels[1] / p, columns = pixels[2] / p, n = pixels[3];
  return {.axes = 5,  // line of patches, column, column of the patch, row of the patch, channel
          .extent = {lines, columns, p, p, n},
          .source = {p * pixels[2] * n, p * n, n, pixels[2] * n, 1},
          .target = {columns * p * p * n, p * p * n, p, 1, p * p}};
}

}  // namespace

Tensor wan_patches(const Tensor& x, std::int64_t p) {
  if (p == 1) return x;
  const Shape& s = x.shape();
  Tensor out = Tensor::empty({s[0], s[1] / p, s[2] / p, s[3] * p * p}, x.dtype(), x.device());
  copy_elements(patching(s, p), x, out);
  return out;
}

Tensor wan_unpatched(const Tensor& x, std::int64_t p) {
  if (p == 1) return x;
  const Shape& s = x.shape();
  Tensor out = Tensor::empty({s[0], s[1] * p, s[2] * p, s[3] / (p * p)}, x.dtype(), x.device());
  gpu::StridedCopy copy = patching(out.shape(), p);
  std::swap(copy.source, copy.target);
  copy_elements(copy, x, out);
  return out;
}

WanResidual::WanResidual(const Checkpoint& weights, const std::string& name, std::int64_t in,
                         std::int64_t out, DType dtype, std::size_t& index)
    : norm1_(load_wan_norm(weights, name + ".norm1", in, dtype)),
      norm2_(load_wan_norm(weights, name + ".norm2", out, dtype)),
      block_(weights, name, in, out, dtype, index, wan_causal) {}

Tensor WanResidual::operator()(const ImagePart& image, const Tensor& x,
                               EarlierFrames& earlier) const {
  return block_(
      image, x, earlier, [&](const Tensor& in) { return wan_norm_silu(in, norm1_); },
      [&](const Tensor& in) { return wan_norm_silu(in, norm2_); });
}

WanMiddle::WanMiddle(const Checkpoint& weights, const std::string& name, std::int64_t channels,
                     DType dtype, std::size_t& index)
    : numerics_(weights.numerics()) {
  for (int i = 0; i < 2; ++i) {
    residuals_.emplace_back(weights, fmt::format("{}.resnets.{}", name, i), channels, channels,
                            dtype, index);
  }
  const std::string attention = name + ".attentions.0.";
  norm_ = load_wan_norm(weights, attention + "norm", channels, dtype, true);
  const Tensor weight =
      weights.load(attention + "to_qkv.weight", {3 * channels, channels, 1, 1}, dtype)
          .reshape({3 * channels, channels});
  const Tensor bias = weights.load(attention + "to_qkv.bias", {3 * channels}, dtype);
  query_ = ops::Linear(weight.rows(0, channels).clone(), bias.rows(0, channels).clone(), numerics_);
  key_value_ = ops::Linear(weight.rows(channels, 2 * channels).clone(),
                           bias.rows(channels, 2 * channels).clone(), numerics_);
  out_ = load_pointwise(weights, attention + "proj", channels, channels, 2, dtype);
}

Tensor WanMiddle::operator()(const ImagePart& image, const Tensor& x,
                             EarlierFrames& earlier) const {
  Tensor h = residuals_[0](image, x, earlier);
  for (std::int64_t t = 0; t < h.shape(0); ++t) {
    Tensor frame = h.rows(t, 1);
    const Tensor normed = wan_norm(frame, norm_);
    ops::add(frame, out_(image.attend(query_(normed), key_value_(normed), numerics_)));
  }
  return residuals_[1](image, h, earlier);
}

}  // namespace reelmesh
