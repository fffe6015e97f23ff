#pragma once
// Estimates of the memory that layers hold and need while they run, from shapes alone, for plans
// made before anything is loaded. Each rule mirrors the code whose memory it predicts; tests
// compare the two.
#include "ops/convolution.hpp"
#include "ops/packing.hpp"
#include "tensor/tensor.hpp"
#include "weights/checkpoint.hpp"

namespace reelmesh {

/// Data types and packing, which determine sizes.
struct Precision {
  DType tensors = DType::float32;
  /// The type in which matrix products and convolutions are computed: ops::compute_dtype(tensors).
  DType products = DType::float32;
  /// Weights are not packed; convolutions have padded channels.
  bool on_gpu = false;
  /// The processor for which weights are packed, if they are.
  ops::PackedFor packed_for = ops::PackedFor::this_processor;

  std::int64_t size() const { return size_of(tensors); }
  bool converts() const { return tensors != products; }
};

/// Bytes of the layers made from these tensors. On the CPU, matrices are packed as by ops::Linear
/// (in the type `tensors`) and convolutions as by ops::Convolution (in the type `products`). On a
/// GPU, matrices are not packed, and channels of convolutions are padded to multiples of 8. Biases
/// and norms are counted as float32, tables and embeddings as `tensors`.
std::int64_t weight_bytes(const ExpectedShapes& tensors, const Precision& precision);

/// The tensors whose names begin with one of these texts.
ExpectedShapes tensors_below(const ExpectedShapes& tensors,
                             std::initializer_list<std::string_view> beginnings);

/// Of the weights that a WeightStream may keep elsewhere (layout/weight_stream.hpp): those of
/// linear layers. largest_part: the most that is fetched at a time.
struct StreamedBytes {
  std::int64_t all = 0;
  std::int64_t largest_part = 0;
};
StreamedBytes streamed_bytes(const ExpectedShapes& tensors, const Precision& precision);

/// Extra bytes while weights are loaded: the unpacked copies of the largest convolution.
std::int64_t loading_bytes(const ExpectedShapes& tensors, const Precision& precision);

/// Bytes of scratch memory that each CPU thread keeps after its first use: rows of the widest layer
/// before and during packing, and packed keys and values of attention. 0 on a GPU.
std::int64_t thread_bytes(const ExpectedShapes& tensors, const Precision& precision);

/// Limit on cuDNN's workspace for a convolution.
constexpr std::int64_t convolution_workspace_bytes = std::int64_t{512} << 20;
/// Bytes of a convolution on a GPU besides its input and output: the workspace and one batch of
/// tiles. 0 on the CPU.
std::int64_t convolution_working_bytes(std::int64_t frames, std::int64_t in, std::int64_t out,
                                       const Precision& precision, const ops::Window& window = {});

/// One call of attention.
struct AttentionSizes {
  std::int64_t queries = 0;   ///< per sequence
  std::int64_t keys = 0;      ///< per sequence, in one call of ops::Attention::add
  std::int64_t pairs = 0;     ///< sequences · batch items · heads
  std::int64_t channels = 0;  ///< of a head
  bool at_once = false;       ///< `keys` are all keys: the CPU keeps no partial sums
};
/// Peak bytes besides queries, keys and values; includes the result.
std::int64_t attention_bytes(const AttentionSizes& sizes, const Precision& precision);

}  // namespace reelmesh
