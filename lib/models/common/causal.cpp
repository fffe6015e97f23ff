#include "models/common/causal.hpp"

#include "ops/pointwise.hpp"

namespace reelmesh {
namespace {

// The last two frames of `before` followed by `now`. At the start of a clip, where `before` is
// empty, a single frame is repeated.
ops::Image last_two_frames(const ops::Image& before, const ops::Image& now) {
  ops::Image last = now;
  for (std::size_t i = 0; i < last.pieces.size(); ++i) {
    const Tensor& values = now.pieces[i].values;
    Shape shape = values.shape();
    const std::int64_t frames = shape[0];
    shape[0] = 2;
    Tensor two = Tensor::empty(shape, values.dtype(), values.device());
    const auto keep = [&](std::int64_t index, const Tensor& frame) {
      two.rows(index, 1).copy_from(frame);
    };
    keep(0, frames > 1              ? values.rows(frames - 2, 1)
            : before.pieces.empty() ? values
                                    : before.pieces[i].values.rows(1, 1));
    keep(1, values.rows(frames - 1, 1));
    last.pieces[i].values = two;
  }
  return last;
}

ops::Image two_zeros(const ops::Image& now) {
  ops::Image zeros = now;
  for (ops::Image::Piece& piece : zeros.pieces) {
    Shape shape = piece.values.shape();
    shape[0] = 2;
    piece.values = Tensor::zeros(shape, piece.values.dtype(), piece.values.device());
  }
  return zeros;
}

}  // namespace

CausalConvolution::CausalConvolution(const ops::Convolution& convolution, BeforeFirst before_first,
                                     std::size_t index)
    : convolution_(convolution), before_first_(before_first), index_(index) {
  expect(convolution.frames() == 3, "a causal convolution over {} frames", convolution.frames());
}

CausalConvolution::CausalConvolution(const Checkpoint& weights, const std::string& name,
                                     std::int64_t in, std::int64_t out, DType dtype,
                                     std::size_t index, const CausalKind& kind)
    : CausalConvolution(
          {weights.load(fmt::format("{}{}.weight", name, kind.suffix), {out, in, 3, 3, 3}, dtype),
           weights.load(fmt::format("{}{}.bias", name, kind.suffix), {out}, dtype),
           weights.numerics()},
          kind.before_first, index) {}

void CausalConvolution::keep(const ops::Image& now, EarlierFrames& earlier) const {
  ops::Image& previous = earlier.frames.at(index_);
  if (previous.pieces.empty() && before_first_ == BeforeFirst::zeros) previous = two_zeros(now);
  if (!earlier.last_batch) previous = last_two_frames(previous, now);
}

Tensor CausalConvolution::operator()(const ImagePart& image, const Tensor& x,
                                     EarlierFrames& earlier) const {
  Halo::Pending pending = image.begin(x, convolution_.window());
  ops::Image& previous = earlier.frames.at(index_);
  if (previous.pieces.empty() && before_first_ == BeforeFirst::zeros) {
    previous = two_zeros(pending.image);
  }
  Tensor out = convolve(convolution_, pending, previous);
  keep(pending.image, earlier);
  return out;
}

void CausalConvolution::skip(const ImagePart& image, const Tensor& x,
                             EarlierFrames& earlier) const {
  Halo::Pending pending = image.begin(x, convolution_.window());
  pending.finish();
  keep(pending.image, earlier);
}

CausalResidual::CausalResidual(const Checkpoint& weights, const std::string& name, std::int64_t in,
                               std::int64_t out, DType dtype, std::size_t& index,
                               const CausalKind& kind)
    : conv1_(weights, name + ".conv1", in, out, dtype, index++, kind),
      conv2_(weights, name + ".conv2", out, out, dtype, index++, kind) {
  if (in == out) return;
  shortcut_ = load_pointwise(weights, name + ".conv_shortcut", in, out, 3, dtype);
}

Tensor CausalResidual::operator()(const ImagePart& image, const Tensor& x, EarlierFrames& earlier,
                                  const Norm& norm1, const Norm& norm2) const {
  Tensor h = conv1_(image, norm1(x), earlier);
  h = norm2(h);
  h = conv2_(image, h, earlier);
  ops::add(h, shortcut_.out_features() > 0 ? shortcut_(x) : x);
  return h;
}

}  // namespace reelmesh
