#pragma once
// What layers hold in memory and need while they run, from shapes alone: for plans, before anything
// is loaded. Each rule follows the code whose memory it predicts; tests compare both.
#include "ops/packing.hpp"
#include "tensor/tensor.hpp"
#include "weights/checkpoint.hpp"

namespace reelmesh {

/// The types that decide on sizes.
struct Precision {
  DType tensors = DType::float32;
  /// Of packed weights and of what is multiplied with them: ops::compute_dtype(tensors).
  DType products = DType::float32;
  /// Weights lie there as they are in files, and nothing is packed.
  bool on_gpu = false;
  /// Whose packing, where weights are packed.
  ops::PackedFor packed_for = ops::PackedFor::this_processor;

  std::int64_t size() const { return size_of(tensors); }
  bool converts() const { return tensors != products; }
};

/// Bytes that the layers of these tensors hold: matrices as ops::Linear packs them, convolutions as
/// ops::Convolution does, in the type of the products, biases and norms as float32; tables and
/// embeddings as they are. On a GPU matrices as they are, and convolutions with channels in eights.
std::int64_t weight_bytes(const ExpectedShapes& tensors, const Precision& precision);

/// While weights are loaded: the plain copies of the largest convolution.
std::int64_t loading_bytes(const ExpectedShapes& tensors, const Precision& precision);

/// Memory that a thread keeps from its first use on: rows of the widest layer before and while they
/// are packed, and keys and values of attention.
std::int64_t thread_bytes(const ExpectedShapes& tensors, const Precision& precision);

/// What the library may ask for to make a convolution on a GPU.
constexpr std::int64_t convolution_workspace_bytes = std::int64_t{512} << 20;
/// Beside the images of a convolution on a GPU: that, and the tiles that go through it together.
std::int64_t convolution_working_bytes(std::int64_t frames, std::int64_t in, std::int64_t out,
                                       const Precision& precision);

/// One call of attention.
struct AttentionSizes {
  std::int64_t queries = 0;  ///< of a sequence
  std::int64_t keys = 0;     ///< of a sequence, that come at once
  std::int64_t pairs = 0;    ///< sequences · batch items · heads
  std::int64_t channels = 0;
  bool at_once = false;  ///< these are all keys: sums need not be kept on the CPU
};
/// What it holds beside its queries, keys and values, with the result.
std::int64_t attention_bytes(const AttentionSizes& sizes, const Precision& precision);

}  // namespace reelmesh
