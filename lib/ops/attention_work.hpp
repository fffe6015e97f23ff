#pragma once
// Implementations of Attention: one class for each backend and element type.
#include "ops/attention.hpp"
#include "tensor/convert.hpp"

namespace reelmesh::ops {

/// Queries, keys or values within a tensor [sequence · row, batch, part, head, channel].
struct Rows {
  Tensor tensor;
  std::int64_t part = 0;
  std::int64_t sequences = 1;
  /// Rows of one sequence.
  std::int64_t count() const { return sequences == 0 ? 0 : tensor.shape(0) / sequences; }
};

class Attention::Work {
 public:
  virtual ~Work() = default;
  /// Keys and values: the same number of each, in the same number of sequences as the queries.
  virtual void add(const Rows& keys, const Rows& values) = 0;
  virtual Tensor finish() = 0;
  /// add() and finish() with all keys in one call.
  virtual Tensor attend(const Rows& keys, const Rows& values) {
    add(keys, values);
    return finish();
  }
};

/// For tensors of shapes: takes what the implementation for the device would.
std::unique_ptr<Attention::Work> attention_of_shapes(const Rows& queries);

/// For tensors on the CPU. bias: float32 [head, query, key] or empty. log_sum_exp: float32
/// [sequence · batch · head, query] for attend() to write: log2(Σ 2^score) over the keys, where
/// score = (scale·q·k + bias)·log2(e); or empty.
std::unique_ptr<Attention::Work> cpu_attention_work(const Rows& queries, float scale,
                                                    const Tensor& bias, Tensor log_sum_exp = {});

/// Copies rows that are `stride` elements apart to a dense block of type Into.
template <class From, class Into>
void gather_rows(const From* from, std::int64_t stride, std::int64_t count, std::int64_t channels,
                 Into* into) {
  for (std::int64_t r = 0; r < count; ++r) {
    convert(from + r * stride, into + r * channels, channels);
  }
}

}  // namespace reelmesh::ops
