#pragma once
#include <algorithm>
#include <memory>
#include <string>

#include "tensor/numerics.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// Attention with keys added in several calls: softmax(scale·q·kᵀ)·v for every batch item and head,
/// without storing the whole score matrix (online softmax over blocks of keys; Milakov & Gimelshein
/// 2018, Dao 2022). Blocks start at fixed key indices, and every row is computed by the same
/// kernel. So the bits of a row depend only on its query and on all keys in their order.
class Attention {
 public:
  /// Keys of one block. Every add() but the last passes a multiple of it.
  static constexpr std::int64_t block_keys = 512;
  /// CPU only: how many (batch item, head) pairs, of all sequences, have their keys and values
  /// packed at the same time. pairs: their total number; bytes: packed size of one pair. 0 for many
  /// small pairs: each thread then packs one pair at a time into its own buffer of at most 1 MiB,
  /// which stays in its cache.
  static constexpr std::int64_t pairs_packed(std::int64_t pairs, std::int64_t bytes) {
    return pairs >= 256 && bytes <= std::int64_t{1} << 20 ? 0 : std::min<std::int64_t>(pairs, 64);
  }

  /// queries: [sequence · query, batch, head, channel]; must not change before finish(). All
  /// sequences have the same length; queries attend only to keys of their own sequence. The numbers
  /// of sequences, queries and heads may be 0.
  Attention(const Tensor& queries, float scale, std::int64_t sequences = 1,
            const Numerics& numerics = {});
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  /// Adds the next keys and values of every sequence: [sequence · key, batch, 2, head, channel], of
  /// the queries' type.
  void add(const Tensor& keys_values);
  /// → [sequence · query, batch, head, channel] of the queries' type. Call once, after all keys.
  Tensor finish();

  class Work;  ///< implementation for one backend and element type

 private:
  std::int64_t sequences_;
  std::int64_t elements_;  ///< of the queries
  DType dtype_;
  std::unique_ptr<Work> work_;
};

/// Whether cuDNN may have a fused attention kernel for these arguments: 16-bit elements, at least
/// block_keys keys per sequence, at most 128 channels per head in a multiple of 8. Necessary, not
/// sufficient.
bool may_use_fused_attention(DType dtype, std::int64_t keys, std::int64_t channels);

/// Whether attend() on this device uses cuDNN's fused kernel instead of the kernels of Attention.
/// The fused kernel needs all keys in one call; results are not bitwise equal. The answer is the
/// same on all ranks with the same kind of device and the same libraries. A dry run takes it that
/// cuDNN has the kernel.
bool uses_fused_attention(Device device, DType dtype, std::int64_t keys, std::int64_t channels,
                          const Numerics& numerics);

/// What computes attention on the GPUs of this machine, for users: "cuDNN for …, otherwise own
/// kernels", "own kernels: …". Empty in a build without CUDA.
std::string attention_on_gpus();

/// The fastest of cuDNN's kernels for these arguments on this rank, for use_attention() on all
/// ranks that attend to the same keys. With numerics.reproducible, results are bitwise equal to
/// those without it. Empty if uses_fused_attention() is false, or if nothing could be measured.
std::string fastest_attention(Device device, DType dtype, std::int64_t keys, std::int64_t channels,
                              const Numerics& numerics);
/// Attends with that kernel from now on; empty: with cuDNN's first. Does nothing if
/// uses_fused_attention() is false.
void use_attention(Device device, DType dtype, std::int64_t keys, std::int64_t channels,
                   const Numerics& numerics, const std::string& choice);

/// The extents of one call of attend().
struct AttentionShape {
  DType dtype = DType::float32;
  std::int64_t sequences = 1, batch = 1, heads = 1, channels = 1;
  std::int64_t queries = 1, keys = 1;  ///< of one sequence
};
/// Makes what attend() needs for calls of this shape, so that it is not made in the first call, and
/// a shape that is not supported is found before work begins: cuDNN's plan, if its fused kernel is
/// used. Throws Error(unavailable) if the kernel does not support the shape.
void prepare_attend(Device device, const AttentionShape& shape, const Numerics& numerics);

/// Attention with all keys in one call; arguments and result as for Attention.
Tensor attend(const Tensor& queries, const Tensor& keys_values, float scale,
              std::int64_t sequences = 1, const Numerics& numerics = {});

/// Self-attention: softmax(scale·q·kᵀ + bias)·v over all tokens. qkv: [token, batch, 3, head,
/// channel]; bias: float32 [head, token, token] (query, key) or empty. → [token, batch, head,
/// channel] of the same type. The number of heads may be 0.
Tensor attention(const Tensor& qkv, float scale, const Tensor& bias = {},
                 const Numerics& numerics = {});

}  // namespace reelmesh::ops
