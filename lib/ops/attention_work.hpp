#pragma once
// Implementations of Attention: one class for each backend and element type.
#include "ops/attention.hpp"

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

/// For tensors on the CPU. bias: float32 [head, query, key] or empty.
std::unique_ptr<Attention::Work> cpu_attention_work(const Rows& queries, float scale,
                                                    const Tensor& bias);

}  // namespace reelmesh::ops
