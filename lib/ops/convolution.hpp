#pragma once
#include "ops/onednn.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// Rows [first, first + count) of an image that is `height` rows high.
struct RowWindow {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t height = 0;
};

/// 3×3 convolution of frames, zero beyond the image's edges, optionally over the last `kt` frames
/// (causal). Computed in tiles of one fixed shape, so that a row's bits depend on the rows and
/// frames around it only, not on how rows are divided among ranks or threads.
class Convolution {
 public:
  Convolution() = default;
  /// weight: [out, in, kt, 3, 3] or [out, in, 3, 3] (kt = 1); bias: [out].
  Convolution(const Tensor& weight, const Tensor& bias);

  /// x: [frame, row, column, in] holding window `have` of an image; → [frame, row, column, out] for
  /// window `want`. `have` must cover the rows that `want` needs (one more on both sides within the
  /// image). Where want.height is 2·have.height the image is first enlarged twice in both
  /// directions by repeating pixels. previous: the kt − 1 frames before x, same window, or empty:
  /// frame 0 of x stands for them.
  Tensor operator()(const Tensor& x, const RowWindow& have, const RowWindow& want,
                    const Tensor& previous = {}) const;

  std::int64_t frames() const { return kt_; }
  std::int64_t bytes() const { return packed_.bytes() + bias_.bytes(); }

 private:
  std::int64_t in_ = 0, out_ = 0, kt_ = 1;
  std::int64_t padded_in_ = 0, padded_out_ = 0;  ///< multiples of 16: oneDNN's fast kernels
  DType dtype_ = DType::float32;
  dnnl::convolution_forward::primitive_desc description_;
  dnnl::convolution_forward primitive_;
  Tensor packed_;  ///< bytes
  Tensor bias_;    ///< float32 [out]
};

}  // namespace reelmesh::ops
