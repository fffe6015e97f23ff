#pragma once

namespace reelmesh {

/// What devices may do to be faster. Set before the first products.
struct Numerics {
  /// Whether products and convolutions of float32 tensors may round their factors to TF32: the
  /// range of float32 and 10 bits behind the point, for which tensor cores are many times as fast
  /// (compute capability 8.0 and later). Sums, attention and everything else stay float32.
  bool tf32 = false;
  /// Whether a row's product has the same bits whatever other rows there are, and with it a clip
  /// the same bits on every layout. Otherwise algorithms are chosen for each number of rows, and
  /// may cut sums into parts.
  bool reproducible = true;
  /// Whether attention goes by our own kernels where a library has one too.
  bool own_attention = false;
};
inline Numerics numerics;

}  // namespace reelmesh
