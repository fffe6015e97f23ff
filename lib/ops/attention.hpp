#pragma once
#include <algorithm>
#include <memory>

#include "tensor/numerics.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// Attention whose keys come bit by bit: softmax(scale·q·kᵀ)·v for every batch item and head,
/// without ever holding the whole score matrix (online softmax over blocks of keys; Milakov &
/// Gimelshein 2018, Dao 2022). Blocks of keys start at fixed keys and a row meets the same kernel
/// wherever it stands, so a row's bits depend on its query and on all keys, in their order, only.
class Attention {
 public:
  /// Keys of one block. Every addition but the last is of a multiple of it.
  static constexpr std::int64_t block_keys = 512;
  /// How many pairs of a batch item and a head, of all sequences, have their keys and values packed
  /// at once on the CPU, where those of one take so many bytes. 0: each thread packs those of the
  /// pair it works on, in at most a MiB of its own; so it is with many small pairs, which then stay
  /// in its cache.
  static constexpr std::int64_t pairs_packed(std::int64_t pairs, std::int64_t bytes) {
    return pairs >= 256 && bytes <= std::int64_t{1} << 20 ? 0 : std::min<std::int64_t>(pairs, 64);
  }

  /// Sequences side by side, equally long; the queries of each attend to its own keys only.
  /// queries: [sequence · query, batch, head, channel], not to be changed before the end.
  /// Sequences, queries and heads may be none.
  Attention(const Tensor& queries, float scale, std::int64_t sequences = 1,
            const Numerics& numerics = {});
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  /// The next keys of every sequence and their values, all of one type with the queries: [sequence
  /// · key, batch, 2, head, channel].
  void add(const Tensor& keys_values);
  /// → [sequence · query, batch, head, channel] of the queries' type. Once, after all keys.
  Tensor finish();

  class Work;  ///< for one type

 private:
  std::int64_t sequences_;
  std::unique_ptr<Work> work_;
};

/// Whether cuDNN can have a kernel for attention to all keys at once, given its limits: 16-bit
/// numbers, so many keys (of a sequence) and channels (of a head).
bool may_attend_at_once(DType dtype, std::int64_t keys, std::int64_t channels);

/// Whether attend() uses another kernel on this device than Attention, which needs all keys at
/// once; results are not bitwise equal. Equal on all ranks with the same kind of device and the
/// same libraries.
bool attends_at_once(Device device, DType dtype, std::int64_t keys, std::int64_t channels,
                     const Numerics& numerics);

/// Attention to all keys at once; arguments and result as Attention has them.
Tensor attend(const Tensor& queries, const Tensor& keys_values, float scale,
              std::int64_t sequences = 1, const Numerics& numerics = {});

/// The same over all tokens at once, with softmax(scale·q·kᵀ + bias). qkv: [token, batch, 3, head,
/// channel]; bias: float32 [head, token, token] (query, key) or empty. → [token, batch, head,
/// channel] of the same type. Heads may be none.
Tensor attention(const Tensor& qkv, float scale, const Tensor& bias = {},
                 const Numerics& numerics = {});

}  // namespace reelmesh::ops
