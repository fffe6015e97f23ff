#pragma once

namespace reelmesh {

/// Input type of matrix products, attention and convolutions of bfloat16 tensors on CPUs.
enum class Products {
  automatic,  ///< bfloat16 where this kind of processor multiplies it faster than float32
  bfloat16,
  float32,
};

/// How matrix products (GEMMs), convolutions and attention on a GPU may trade accuracy for speed.
/// Not used on the CPU. Passed to the constructors of layers and to calls of attention.
struct Numerics {
  /// Whether GEMMs and convolutions of float32 tensors, and GEMMs in attention with heads of more
  /// than 128 channels, may round their inputs to TF32: the range of float32 with 10 bits of
  /// mantissa, which makes them many times as fast on tensor cores (compute capability 8.0 and
  /// later). Sums and everything else stay float32.
  bool tf32 = false;
  /// Whether the bits of a row of a GEMM must not depend on the other rows, so that a clip has the
  /// same bits in every layout. Otherwise algorithms are chosen for each number of rows and may
  /// split sums (split-K).
  bool reproducible = true;
  /// Whether attention uses our own kernels even if cuDNN has one.
  bool own_attention = false;
};

}  // namespace reelmesh
