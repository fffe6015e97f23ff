#pragma once
// What an Attention has under it: one class for each backend and type.
#include "ops/attention.hpp"

namespace reelmesh::ops {

/// Queries, keys or values within a tensor [row, batch, part, head, channel].
struct Rows {
  Tensor tensor;
  std::int64_t part = 0;
};

class Attention::Work {
 public:
  virtual ~Work() = default;
  /// Keys and values: equally many rows, `count`.
  virtual void add(const Rows& keys, const Rows& values, std::int64_t count) = 0;
  virtual Tensor finish() = 0;
};

}  // namespace reelmesh::ops
