#pragma once
namespace reelmesh::ops {

/// Whether products and convolutions of float32 tensors on devices may round their factors to TF32:
/// the range of float32 and 10 bits behind the point, for which tensor cores are many times as fast
/// (compute capability 8.0 and later). Sums, attention and everything else stay float32. Set
/// before the first of them.
inline bool tf32_allowed = false;

}  // namespace reelmesh::ops
