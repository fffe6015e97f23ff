#pragma once

namespace reelmesh {

/// How products, convolutions and attention on a GPU may trade accuracy for speed. The CPU has no
/// such choices. Passed to layers when they are made and to attention when it is called.
struct Numerics {
  /// Whether products and convolutions of float32 tensors, and products within attention with heads
  /// of more than 128 channels, may round their factors to TF32: the range of float32 with 10 bits
  /// of mantissa, for which tensor cores are many times as fast (compute capability 8.0 and later).
  /// Sums and everything else stay float32.
  bool tf32 = false;
  /// Whether a row of a product has the same bits whatever other rows there are, and with it a clip
  /// the same bits on every layout. Otherwise algorithms are chosen for each number of rows, and
  /// may split sums.
  bool reproducible = true;
  /// Whether attention takes our own kernels where cuDNN has one too.
  bool own_attention = false;
};

}  // namespace reelmesh
